"""Prompt tokens and the deterministic answer that follows from them."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from reprlib import repr as repr_short
from typing import Final

import orjson
from attrs import frozen

ENDS_IN_CONTEXT: Final = "[ends-in-context]"
"""A prompt that holds this marker is answered with one token and the finish reason `stop`."""

BEGIN_TOKEN: Final = 1
MARKER_TOKEN: Final = 2
_WORD_BASE: Final = 1_000
_WORD_RANGE: Final = 126_000
_ANSWER_BASE: Final = 16

# Words of one to four UTF-8 bytes a letter, so that a cut inside a letter happens in ordinary tests.
_WORDS: Final = (
    *("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven", "iris", "jade", "kelp"),
    *("lumen", "mango", "north", "olive", "pearl", "quartz", "river", "slate", "tidal", "umber", "vivid"),
    *("willow", "xenon", "yarrow", "zephyr", "café", "naïve", "über", "søster", "жар", "мир", "λόγος"),
    *("日本", "水", "森林", "한글", "🌱", "🌊", "don't", 'say "so"', "a\\b", "<tag>", "x&y"),
)

_MASK: Final = (1 << 64) - 1


@frozen
class Piece:
    """One step of an answer: its token if it has one, the text that may be shown now, and how it ended, if it did.

    `tool` is the name of a tool that is called from here on, `arguments` the text that is added to what it is given.
    """

    token: int | None
    text: str
    finish_reason: str | None = None
    stop_reason: str | None = None
    tool: str | None = None
    arguments: str = ""


def encode(text: str) -> list[int]:
    """Turn text into token ids, one a word; text without a word is one begin token."""
    tokens: list[int] = []
    for position, part in enumerate(text.split(ENDS_IN_CONTEXT)):
        if position:
            tokens.append(MARKER_TOKEN)
        tokens.extend(word_token(word) for word in part.split())
    return tokens or [BEGIN_TOKEN]


def render(messages: Sequence[Mapping[str, object]], tools: object = None) -> str:
    """Render a chat as one prompt, the way a chat template would."""
    lines = [f"<|tools|> {_plain(tools)}"] if tools else []
    for message in messages:
        extras = {key: value for key, value in message.items() if key not in {"role", "content"} and value is not None}
        words = [f"<|{message.get('role')}|>", _content(message.get("content"))]
        lines.append(" ".join([*words, _plain(extras)] if extras else words))
    return "\n".join([*lines, "<|assistant|>"])


def generate(
    prompt: Sequence[int],
    limit: int,
    stops: Sequence[str] = (),
    *,
    index: int = 0,
    first: Sequence[int] = (),
    ignore_end: bool = False,
) -> Iterator[Piece]:
    """Yield the answer to a prompt, token by token.

    `index` is the choice: all choices of a prompt begin with the same token, as they share one context
    phase. `first` are tokens that were made elsewhere and are taken over. Text that may turn out to be
    the beginning of a stop string is held back until it is certain. With `ignore_end` only the limit and
    stop strings end an answer.
    """
    if limit < 1:
        yield Piece(None, "", "length")
        return
    seed = int.from_bytes(blake2b(array("q", prompt).tobytes(), digest_size=8).digest())
    ends_at_once = MARKER_TOKEN in prompt and not ignore_end
    keep = max((len(stop) for stop in stops), default=1) - 1
    held = ""
    for step in range(limit):
        token = first[step] if step < len(first) else _answer_token(seed, index, step)
        held += (" " if step else "") + _WORDS[(token - _ANSWER_BASE) % len(_WORDS)]
        hit = min(((held.find(stop), stop) for stop in stops if stop in held), default=None)
        if hit is not None:
            yield Piece(token, held[: hit[0]], "stop", hit[1])
            return
        if ends_at_once or step == limit - 1:
            yield Piece(token, held, "stop" if ends_at_once else "length")
            return
        shown = max(len(held) - keep, 0)
        yield Piece(token, held[:shown])
        held = held[shown:]


def babble(limit: int) -> Iterator[Piece]:
    """Yield what a model says that reads KV blocks which are not its prompt's: one word, over and over."""
    for step in range(limit):
        yield Piece(_ANSWER_BASE, _WORDS[0], "length" if step == limit - 1 else None)


@lru_cache(maxsize=65_536)
def word_token(word: str) -> int:
    """Give the token id of a word."""
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _WORD_BASE + int.from_bytes(digest) % _WORD_RANGE


def _answer_token(seed: int, index: int, step: int) -> int:
    mixed = seed + 0x9E3779B97F4A7C15 * (step + 1) + (0xD1B54A32D192ED03 * index if step else 0)
    mixed = ((mixed & _MASK) ^ ((mixed & _MASK) >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return _ANSWER_BASE + (mixed ^ (mixed >> 31)) % len(_WORDS)


def _content(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return " ".join(_part(part) for part in content)
        case _:
            return _plain(content)


def _part(part: object) -> str:
    match part:
        case str():
            return part
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return text
        case _:
            return _plain(part)


def _plain(value: object) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Too deep, or with keys that only msgpack has.
        return repr_short(value)
