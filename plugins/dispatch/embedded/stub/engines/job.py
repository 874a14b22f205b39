"""A checked request: what is to be answered and in which form."""

from collections.abc import Iterator, Mapping
from typing import cast

from attrs import field, frozen

from plugins.dispatch.embedded.stub.apis import CHAT, LIMITS
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.script import Script
from plugins.dispatch.embedded.stub.shapes.base import Counts
from plugins.dispatch.embedded.stub.shapes.openai import Asked
from plugins.dispatch.embedded.stub.text import Piece, babble, generate

DEFAULT_TOKENS = 16
MOST_CHOICES = 128


@frozen(kw_only=True)
class Job:
    """The prompts as token ids, and the options that shape the answer.

    The choices at the places in `spoiled` read KV blocks that are not their prompt's. A job that is `declined`
    ends without a token, for that reason. A `script` is followed in place of words at random. `tail` are fields for
    the end of the answer.
    """

    api: str
    prompts: tuple[Prompt, ...]
    choices: int
    limit: int
    stops: tuple[str, ...] = ()
    stream: bool = False
    asked: Asked = field(factory=Asked)
    ignore_end: bool = False
    first: Prompt = ()
    counted_prompt: int | None = None
    cached_tokens: int = 0
    created_tokens: int = 0
    spoiled: frozenset[int] = frozenset()
    declined: str | None = None
    script: Script | None = None
    tail: Mapping[str, object] = field(factory=dict)

    @property
    def chat(self) -> bool:
        """Whether this is a request of the chat API."""
        return self.api == CHAT

    @property
    def sequences(self) -> int:
        """How many choices there are in all, over all prompts."""
        return len(self.prompts) * self.choices

    @property
    def tokens(self) -> int:
        """How many tokens the prompts have."""
        return sum(map(len, self.prompts))

    def pieces(self) -> list[Iterator[Piece]]:
        """Begin one answer for each choice of each prompt."""
        return [
            self._begin(prompt, index, position * self.choices + index)
            for position, prompt in enumerate(self.prompts)
            for index in range(self.choices)
        ]

    def counts(self, completion_tokens: int) -> Counts:
        """Count this request's tokens."""
        counted = self.tokens if self.counted_prompt is None else self.counted_prompt
        return Counts(counted, completion_tokens, self.cached_tokens, self.created_tokens)

    def _begin(self, prompt: Prompt, index: int, place: int) -> Iterator[Piece]:
        if self.declined is not None:
            return iter((Piece(None, "", self.declined),))
        if place in self.spoiled and self.limit:
            return babble(self.limit)
        if self.script is not None:
            return self.script.pieces(self.limit)
        ignore_end = self.ignore_end
        return generate(prompt, self.limit, self.stops, index=index, first=self.first, ignore_end=ignore_end)


def read_job(
    body: Mapping[str, object],
    prompts: tuple[Prompt, ...],
    api: str,
    *,
    limits: tuple[str, ...] = (),
    least: int = 1,
) -> Job:
    """Read the options of a body whose fields have the right types; `ValueError` for a bad number.

    `limits` are the fields that limit the answer if they are not those of `LIMITS`, `least` is the smallest
    limit that the engine takes.
    """
    choices = _number(body, "n", default=1)
    if choices > MOST_CHOICES:
        raise ValueError(f"n must be at most {MOST_CHOICES}, got {choices}")
    names = limits or LIMITS[api]
    name = next((name for name in names if body.get(name) is not None), names[0])
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    return Job(
        api=api,
        prompts=prompts,
        choices=choices,
        limit=_number(body, name, default=DEFAULT_TOKENS, least=least),
        stops=_stops(body.get("stop") or body.get("stop_sequences")),
        stream=body.get("stream") is True,
        asked=Asked(
            usage=body.get("stream_options") is not None and options.get("include_usage", True) is True,
            continuous=options.get("continuous_usage_stats") is True,
        ),
        ignore_end=body.get("ignore_eos") is True,
    )


def _stops(stop: object) -> tuple[str, ...]:
    texts = [stop] if isinstance(stop, str) else cast("list[str]", stop or [])
    return tuple(text for text in texts if text)


def _number(body: Mapping[str, object], name: str, *, default: int, least: int = 1) -> int:
    value = body.get(name)
    number = default if value is None else int(cast("float", value))
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
