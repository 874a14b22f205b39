"""The prompt of a request as token ids, for each API."""

from collections.abc import Mapping
from typing import cast

from plugins.dispatch.embedded.stub.apis import CHAT, COMPLETIONS, MESSAGES
from plugins.dispatch.embedded.stub.fields import is_token_ids
from plugins.dispatch.embedded.stub.text import encode, render

Prompt = tuple[int, ...]
Message = Mapping[str, object]


def read_prompts(body: Mapping[str, object], api: str) -> tuple[Prompt, ...]:
    """Turn what a body asks into token ids, one tuple a prompt; `ValueError` when it asks nothing."""
    if api == COMPLETIONS:
        return read_texts(body["prompt"])
    if api == CHAT:
        return (read_messages(body),)
    messages = _said(body) if api == MESSAGES else _inputs(body)
    return (tuple(encode(render(messages, body.get("tools")))),)


def read_texts(prompt: object) -> tuple[Prompt, ...]:
    """Turn a completions prompt into token ids, one tuple a prompt; `ValueError` for an empty one."""
    match prompt:
        case str():
            return (tuple(encode(prompt)),)
        case []:
            raise ValueError("the prompt must not be empty")
        case list() if is_token_ids(prompt):
            return (tuple(prompt),)
        case list() if all(prompt):
            return tuple(tuple(encode(item) if isinstance(item, str) else item) for item in prompt)
        case _:
            raise ValueError("a prompt in the list is empty")


def read_messages(body: Mapping[str, object]) -> Prompt:
    """Turn a chat's messages and tools into token ids; `ValueError` when there are none."""
    messages = cast("list[Message]", body["messages"])
    if not messages:
        raise ValueError("messages must not be empty")
    return tuple(encode(render(messages, body.get("tools"))))


def _said(body: Mapping[str, object]) -> list[Message]:
    """The messages of an Anthropic request, with its system prompt as the first of them."""
    messages = cast("list[Message]", body["messages"])
    if not messages:
        raise ValueError("messages must not be empty")
    system = body.get("system")
    return [*([{"role": "system", "content": system}] if system else []), *messages]


def _inputs(body: Mapping[str, object]) -> list[Message]:
    """The items of a Responses request as messages, with its instructions as the first of them."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else cast("list[Message]", given)
    if not items:
        raise ValueError("input must not be empty")
    told = body.get("instructions")
    opening: list[Message] = [{"role": "system", "content": told}] if told else []
    return [*opening, *({key: value for key, value in item.items() if key != "type"} for item in items)]
