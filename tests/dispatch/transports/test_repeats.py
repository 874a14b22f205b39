"""Heads that come again: what is remembered of them never changes what an answer means."""

import asyncio
import random
from collections.abc import Iterable

import pytest

from plugins.dispatch.client import Client, MalformedFault
from plugins.dispatch.transports.lean.repeats import MISSES, SIZE, Repeats
from plugins.dispatch.transports.lean.response import LeanResponse
from tests.dispatch.transports.exchange import CHUNKED as CODED
from tests.dispatch.transports.exchange import OK, call, fetch, framed, lean_only, sized
from tests.dispatch.transports.peer import Peer, worker
from tests.dispatch.transports.test_answers import WHOLE
from tests.dispatch.transports.test_decoder import cuts, decode, spoil
from tests.dispatch.transports.test_hostile_answers import BODIES, HEADS

SEEDS = 3000

LENGTHS = (b"content-length: 3", b"Content-Length: 3", b"content-length:3", b"CONTENT-LENGTH: 3")
"""As servers write it; the last one as none does."""

CODES = (b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 None", b"HTTP/1.1 304 Same")


@pytest.fixture
def known() -> Repeats:
    """What is known of a worker: nothing."""
    return Repeats()


class Kept:
    """A connection that only notes what becomes of it."""

    def __init__(self) -> None:
        self.keep: bool | None = None

    def expect(self) -> "asyncio.Future[None]":
        """Nobody waits."""
        raise NotImplementedError

    def hold(self) -> None:
        """The answers are small."""

    def resume(self) -> None:
        """See `hold`."""

    def cut_request(self) -> None:
        """All was sent."""

    def finish(self, *, keep: bool) -> None:
        """The answer has ended."""
        self.keep = keep

    def abort(self) -> None:
        """It was refused."""
        self.keep = False


def read(known: Repeats, parts: Iterable[bytes], method: str = "POST") -> tuple[object, ...]:
    """What a response makes of these parts, in the words of `decode`."""
    carrier = Kept()
    response = LeanResponse(carrier, method, known)
    for part in parts:
        if carrier.keep is None:
            response.feed(part)
    content = b"".join(response._parts)
    if response.carrier is not None:
        state = "open"
    elif response.rest() is None:
        assert type(response.fault()) is MalformedFault
        state = "refused"
    else:
        state = "clean" if carrier.keep else "ended"
    return (response.status, dict(response.headers), content, state) if response.status else (state,)


def meaning(parts: Iterable[bytes]) -> tuple[object, ...]:
    """What the decoder alone makes of them, with the end of a body that has a length."""
    found = decode(parts)
    if len(found) == 1:
        return found
    status, headers, length, body, state = found
    assert isinstance(length, int)
    assert isinstance(headers, dict)
    assert isinstance(body, bytes)
    if length >= 0 and len(body) >= length:
        state = "clean" if len(body) == length else "ended"
        body = body[:length]
    return status, headers, body, state


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_means_the_same_each_time(known: Repeats, name: str) -> None:
    """However it is cut, after it came whole."""
    raw, _ = WHOLE[name]
    first = read(known, [raw])
    assert first == meaning([raw])
    assert first[-1] == ("ended" if name == "trailers" else "clean")
    for parts in cuts(raw):
        assert read(known, (part for part in parts if part)) == first, parts


@pytest.mark.parametrize("raw", [*HEADS.values(), *(OK + CODED + body for body in BODIES.values())])
def test_a_bad_answer_is_refused_each_time(known: Repeats, raw: bytes) -> None:
    """Whatever good ones came before it."""
    for length in LENGTHS:
        assert read(known, [OK + length + b"\r\n\r\nabc"])[-1] == "clean"
    assert read(known, [OK + CODED + framed(b"abc")])[-1] == "clean"
    for _ in range(2):
        assert read(known, [raw])[-1] == "refused"


def test_whatever_comes_means_what_it_says(known: Repeats) -> None:
    """Answers with bytes changed, left out and put in, while all that came before is remembered."""
    samples = [raw for raw, _ in WHOLE.values()] + list(HEADS.values())
    samples += [code + b"\r\n" + length + b"\r\n\r\nabc" for code in CODES for length in LENGTHS]
    marks = [b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"0", b"3", b"9", b":", b" ", b"\0", b"content-length: 1\r\n", b"x"]
    outcomes = set()
    for seed in range(SEEDS):
        chance = random.Random(seed)
        data = spoil(chance, samples, marks, 0, 3)
        expected = meaning([data])
        for _ in range(2):
            found = read(known, [data])
            if found[-1] == "ended" and expected[-1] == "clean":
                found = (*found[:-1], "clean")  # the connection is not kept for what the head says
            assert found == expected, (seed, data)
        outcomes.add(expected[-1])
    assert outcomes == {"refused", "open", "clean", "ended"}


@pytest.mark.parametrize("length", LENGTHS)
def test_each_answer_has_its_own_length(known: Repeats, length: bytes) -> None:
    """Where the rest of the head is the same."""
    for size in (3, 5, 3, 0, 12, 5):
        head = OK + b"x: 1\r\n" + length.replace(b"3", b"%d" % size) + b"\r\n\r\n"
        status, headers, body, state = read(known, [head + b"b" * size])
        assert (status, body, state) == (200, b"b" * size, "clean")
        assert headers == {"x": "1", "content-length": str(size)}
        assert read(known, [head + b"b" * size + b"+"])[2:] == (b"b" * size, "ended")
        if size:
            assert read(known, [head + b"b" * (size - 1)])[2:] == (b"b" * (size - 1), "open")


def test_what_has_a_length_says_nothing_of_what_has_none(known: Repeats) -> None:
    """A head that lacks only the digits is none."""
    assert read(known, [OK + b"content-length: 3\r\n\r\nabc"])[-1] == "clean"
    for bad in (b"content-length: \r\n", b"content-length:\r\n", b"content-length: 3\r\ncontent-length: 3\r\n"):
        for _ in range(2):
            assert read(known, [OK + bad + b"\r\nabc"]) == ("refused",)


def test_a_length_is_what_the_parser_says_it_is(known: Repeats) -> None:
    """With zeros before it, or too many digits."""
    for digits in (b"3", b"003", b"3", b"0" * 17 + b"3"):
        headers, body, state = read(known, [OK + b"content-length: " + digits + b"\r\n\r\nabc"])[1:]
        assert (headers, body, state) == ({"content-length": digits.decode()}, b"abc", "clean")
    for digits in (b"3" * 19, b"0" * 18 + b"3", b"3 ", b"+3", b"3_3", b"\xb2"):
        found = read(known, [OK + b"content-length: " + digits + b"\r\n\r\nabc"])
        assert found[-1] == ("clean" if digits == b"3 " else "refused")


def test_answers_to_head_have_no_body_and_others_have(known: Repeats) -> None:
    """Whichever came first."""
    for raw in (OK + b"content-length: 3\r\n\r\n", OK + CODED):
        for _ in range(2):
            assert read(known, [raw], "HEAD")[-1] == "clean"
            assert read(known, [raw], "GET")[-1] == "open"


def test_an_interim_answer_is_not_the_answer_behind_it(known: Repeats) -> None:
    """Each time there is another one."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    for raw, body in ((OK + CODED + framed(b"a"), b"a"), (sized(b""), b""), (sized(b"abc"), b"abc")) * 2:
        assert read(known, [interim + raw])[2:] == (body, "clean")
        assert read(known, [interim, raw])[2:] == (body, "clean")
    assert read(known, [interim]) == ("open",)
    for length in (3, 4):
        both = b"HTTP/1.1 103 Early\r\ncontent-length: %d\r\n\r\n" % length + sized(b"abc")
        assert read(known, [both])[2:] == (b"abc", "clean")


def test_a_worker_may_want_each_connection_closed(known: Repeats) -> None:
    """It says so in a head that is remembered, too."""
    for _ in range(3):
        assert read(known, [sized(b"abc", b"connection: close")])[-1] == "ended"
        assert read(known, [sized(b"abc")])[-1] == "clean"


def test_what_is_remembered_is_small(known: Repeats) -> None:
    """What is too large for it is read all the same."""
    for size in (10, SIZE, 10, 2 * SIZE):
        for raw in (sized(b"abc", b"x: " + b"y" * size), OK + b"x: " + b"y" * size + b"\r\n" + CODED + framed(b"abc")):
            for _ in range(2):
                assert read(known, [raw])[2:] == (b"abc", "clean")
                assert len(known._before + known._after) < SIZE
                assert len(known._exact) < SIZE


def test_heads_that_are_all_new_are_remembered_seldom(known: Repeats) -> None:
    """But often enough for what comes again later."""
    seen = set()
    for number in range(10 * MISSES):
        assert read(known, [sized(b"abc", b"x-request-id: %d" % number)])[-1] == "clean"
        seen.add(known._before)
    assert len(seen) < 3 * MISSES
    for _ in range(MISSES):
        assert read(known, [sized(b"abc", b"date: now")])[-1] == "clean"
    assert b"date: now" in known._before


@pytest.mark.parametrize("raw", [b"\r\n\r\n", b"\r\n\r\n0\r\n\r\n", b"\r\n\r\n3\r\n\r\nabc", b"\r\n"])
def test_an_end_alone_is_no_head(known: Repeats, raw: bytes) -> None:
    """Neither before another one nor after."""
    assert read(known, [raw]) == ("refused",)
    for good in (sized(b"abc"), OK + CODED + framed(b"abc")):
        assert read(known, [good])[-1] == "clean"
        assert read(known, [raw]) == ("refused",)


@lean_only
@pytest.mark.anyio
async def test_a_refusal_is_heard_each_time(client: Client) -> None:
    """The rest of a request is not sent either time."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(sized(b"no", status=b"413 Too Large"))
        await peer.gone()

    async with worker(script) as server:
        for _ in range(3):
            assert (await fetch(client, call(server.url, body=b"x" * 4_000_000))).whole == (413, b"no")
            await server.until_left()
