"""A checked request: what is to be answered and in which form."""

from collections.abc import Iterator, Mapping
from typing import cast

from attrs import frozen

from plugins.dispatch.embedded.stub.fields import is_token_ids
from plugins.dispatch.embedded.stub.replies import usage
from plugins.dispatch.embedded.stub.text import Piece, encode, generate, render

DEFAULT_TOKENS = 16
MOST_CHOICES = 128

Prompt = tuple[int, ...]


@frozen(kw_only=True)
class Job:
    """The prompts as token ids, and the options that shape the answer."""

    chat: bool
    prompts: tuple[Prompt, ...]
    choices: int
    limit: int
    stops: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    first: Prompt = ()
    counted_prompt: int | None = None
    cached_tokens: int = 0

    def pieces(self) -> list[Iterator[Piece]]:
        """Begin one answer for each choice of each prompt."""
        return [
            generate(prompt, self.limit, self.stops, index=index, first=self.first)
            for prompt in self.prompts
            for index in range(self.choices)
        ]

    def usage(self, completion_tokens: int) -> dict[str, object]:
        """Count this request's tokens."""
        counted = sum(map(len, self.prompts)) if self.counted_prompt is None else self.counted_prompt
        return usage(counted, completion_tokens, self.cached_tokens)


def read_prompts(prompt: object) -> tuple[Prompt, ...]:
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
    messages = cast("list[Mapping[str, object]]", body["messages"])
    if not messages:
        raise ValueError("messages must not be empty")
    return tuple(encode(render(messages, body.get("tools"))))


def read_job(body: Mapping[str, object], prompts: tuple[Prompt, ...], *, chat: bool) -> Job:
    """Read the options of a body whose fields have the right types; `ValueError` for a bad number."""
    choices = _number(body, "n", default=1)
    if choices > MOST_CHOICES:
        raise ValueError(f"n must be at most {MOST_CHOICES}, got {choices}")
    name = "max_completion_tokens" if chat and body.get("max_tokens") is None else "max_tokens"
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    return Job(
        chat=chat,
        prompts=prompts,
        choices=choices,
        limit=_number(body, name, default=DEFAULT_TOKENS),
        stops=_stops(body.get("stop")),
        stream=body.get("stream") is True,
        include_usage=body.get("stream_options") is not None and options.get("include_usage", True) is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
    )


def _stops(stop: object) -> tuple[str, ...]:
    texts = [stop] if isinstance(stop, str) else cast("list[str]", stop or [])
    return tuple(text for text in texts if text)


def _number(body: Mapping[str, object], name: str, *, default: int) -> int:
    value = body.get(name)
    number = default if value is None else int(cast("float", value))
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number
