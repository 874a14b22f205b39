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
    return read_texts(body["prompt"]) if api == COMPLETIONS else (tuple(encode(read_prompt(body, api))),)


def read_prompt(body: Mapping[str, object], api: str) -> str:
    """Turn what is said in a body, and the tools in it, into one text; `ValueError` when nothing is said."""
    messages = _chatted(body) if api == CHAT else _said(body) if api == MESSAGES else _inputs(body)
    return render(messages, body.get("tools"))


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


def _chatted(body: Mapping[str, object]) -> list[Message]:
    """The messages of a chat."""
    messages = cast("list[Message]", body["messages"])
    if not messages:
        raise ValueError("messages must not be empty")
    return messages


def _said(body: Mapping[str, object]) -> list[Message]:
    """The messages of an Anthropic request, with its system prompt as the first of them."""
    system = body.get("system")
    return [*([{"role": "system", "content": system}] if system else []), *_chatted(body)]


def _inputs(body: Mapping[str, object]) -> list[Message]:
    """The items of a Responses request as messages, with its instructions as the first of them."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else cast("list[Message]", given)
    if not items:
        raise ValueError("input must not be empty")
    told = body.get("instructions")
    opening: list[Message] = [{"role": "system", "content": told}] if told else []
    return [*opening, *({key: value for key, value in item.items() if key != "type"} for item in items)]
