"""The decoder alone: what an answer means does not depend on how its bytes are cut."""

import random
from collections.abc import Iterable, Iterator, Sequence

import pytest

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.transports.lean.decoder import Decoder
from plugins.dispatch.transports.lean.head import CHUNKED
from tests.dispatch.transports.exchange import CHUNKED as CODED
from tests.dispatch.transports.exchange import OK
from tests.dispatch.transports.test_answers import WHOLE
from tests.dispatch.transports.test_hostile_answers import BODIES, HEADS

SEEDS = 3000


def decode(parts: Iterable[bytes]) -> tuple[object, ...]:
    """What a decoder makes of these parts: the head, the content, whether it has ended, and if it was clean."""
    content: list[bytes] = []
    decoder, head, ended, clean = Decoder("POST", content), None, False, False
    rest = b""
    try:
        for part in parts:
            data = part
            if head is None:
                found = decoder.read_head(data)
                if found is None:
                    continue
                head, data = found
            if head.length != CHUNKED or ended:
                rest += data
            elif data:
                ended = decoder.read_chunks(data)
                clean = decoder.whole
    except MalformedFault:
        clean = False
        if head is None:
            return ("refused",)
        return head.status, dict(head.headers), head.length, b"".join(content), "refused"
    if head is None:
        return ("open",)
    state = "open" if not ended else "clean" if clean and not rest else "ended"
    body = rest if head.length != CHUNKED else b"".join(content)
    return head.status, dict(head.headers), head.length, body, state


def cuts(raw: bytes) -> Iterator[tuple[bytes, ...]]:
    """The bytes in three parts, in every way."""
    for first in range(1, len(raw)):
        for second in range(first, len(raw)):
            yield raw[:first], raw[first:second], raw[second:]


@pytest.mark.parametrize("name", WHOLE)
def test_a_good_answer_may_be_cut_twice_anywhere(name: str) -> None:
    """Also inside of what ends a line, a chunk or a head."""
    raw, body = WHOLE[name]
    whole = decode([raw])
    assert whole[3] == body
    for parts in cuts(raw):
        assert decode(part for part in parts if part) == whole, parts


@pytest.mark.parametrize("raw", [*HEADS.values(), *(OK + CODED + body for body in BODIES.values())])
def test_a_bad_answer_is_bad_however_it_is_cut(raw: bytes) -> None:
    """No cut makes it a good one."""
    for place in range(1, len(raw)):
        assert decode([raw[:place], raw[place:]])[-1] == "refused", place


def spoil(chance: random.Random, samples: Sequence[bytes], marks: Sequence[bytes], least: int, most: int) -> bytes:
    """One of the samples, with so many places at which something was changed, left out or put in."""
    raw = bytearray(chance.choice(samples))
    for _ in range(chance.randint(least, most)):
        place = chance.randrange(len(raw))
        raw[place : place + chance.choice((0, 0, 1, 1, 5))] = chance.choice(marks)
    return bytes(raw)


def test_whatever_comes_is_an_answer_or_refused() -> None:
    """Answers with bytes changed, left out and put in; whole and in random parts they mean the same."""
    samples = [raw for raw, _ in WHOLE.values()] + list(HEADS.values())
    marks = [b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"0", b";", b":", b" ", b"\0", b"\xff", b"f", b"0\r\n\r\n", b"chunked"]
    outcomes = set()
    for seed in range(SEEDS):
        chance = random.Random(seed)
        data = spoil(chance, samples, marks, 1, 4)
        places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(1, 6)))
        parts = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
        whole = decode([data])
        split = decode(part for part in parts if part)
        assert split == whole or (whole[-1] == split[-1] == "refused"), (seed, data, parts)
        outcomes.add(whole[-1])
    assert outcomes == {"refused", "open", "clean", "ended"}
