"""Reading a body: whole, within its limits of size and time, or one clear answer."""

import asyncio
from collections.abc import MutableMapping
from typing import Any
from unittest.mock import patch

import pytest

from kernel import TRUNCATED, ClientGone, Exchange, Rejection
from kernel.testing import build_exchange
from tests.kernel.support import TEST, turn

pytestmark = pytest.mark.anyio


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    """A message with a part of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


GONE: dict[str, Any] = {"type": "http.disconnect"}


def exchange_of(*messages: dict[str, Any], length: str | None = None, **scope: Any) -> Exchange:
    """An exchange whose client sends `messages` and then nothing more."""
    queue = [*messages]

    async def receive() -> MutableMapping[str, Any]:
        if queue:
            return queue.pop(0)
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    headers = [] if length is None else [(b"content-length", length.encode())]
    base = {"type": "http", "method": "POST", "path": "/test", "headers": headers}
    return Exchange(TEST, {**base, **scope}, receive)


async def much_later(exchange: Exchange) -> None:
    """Let an hour go by on the loop's clock, and whatever waits for a time in it happen."""
    then = exchange.loop.time() + 3600
    with patch.object(exchange.loop, "time", lambda: then):
        await turn()


async def rejection_of(exchange: Exchange, limit: int = 10, seconds: float = 60) -> Rejection:
    """The rejection that reading ends with."""
    with pytest.raises(Rejection) as caught:
        await exchange.read(limit, seconds)
    return caught.value


@pytest.mark.parametrize("parts", [(b"abc",), (b"a", b"b", b"c"), (b"", b"ab", b"", b"c", b""), (b"a",) * 10])
async def test_a_body_is_read_whole(parts: tuple[bytes, ...]) -> None:
    """However it was cut."""
    exchange = exchange_of(*(part(piece) for piece in parts), part(b"", more=False))
    assert await exchange.read(10) == b"".join(parts)
    assert exchange.may_watch


async def test_an_empty_body_is_a_body() -> None:
    """Empty bytes."""
    assert await build_exchange().read(0) == b""


async def test_a_body_of_exactly_the_limit_passes() -> None:
    """Announced or not."""
    assert await exchange_of(part(b"x" * 10, more=False)).read(10) == b"x" * 10
    assert await exchange_of(part(b"x" * 10, more=False), length="10").read(10) == b"x" * 10


@pytest.mark.parametrize("length", ["11", "99999999999999999999", "9" * 5000, "00000011"])
async def test_an_announced_length_over_the_limit_is_refused_unread(length: str) -> None:
    """Not a byte is taken in."""
    exchange = exchange_of(length=length)
    rejection = await rejection_of(exchange)
    assert (rejection.status, rejection.code) == (413, "body_too_large")
    assert rejection.message == "the request body is larger than 10 bytes"
    assert ("connection", "close") in rejection.headers
    assert not exchange.may_watch


@pytest.mark.parametrize("length", [None, "5", "-1", "abc", "", "\u00b2", "1 1"])
async def test_a_sum_over_the_limit_is_refused(length: str | None) -> None:
    """Whatever was announced; what is no number is the server's to judge."""
    exchange = exchange_of(part(b"x" * 6), part(b"x" * 6), length=length)
    assert (await rejection_of(exchange)).status == 413


async def test_a_body_without_an_end_is_not_gathered_beyond_the_limit() -> None:
    """The sum is looked at with every part."""
    exchange = exchange_of(*(part(b"x") for _ in range(12)))
    assert (await rejection_of(exchange)).status == 413


async def test_a_slow_body_is_refused() -> None:
    """With 408, when its time is over, and the connection is closed."""
    rejection = await rejection_of(exchange_of(part(b"x")), seconds=0.01)
    assert rejection.status == 408
    assert rejection.message == "the request body did not arrive within 0.01 s"
    assert ("connection", "close") in rejection.headers


async def test_a_body_in_time_leaves_no_clock_running() -> None:
    """A request may take longer than its body."""
    exchange = exchange_of(part(b"x", more=False))
    await exchange.read(10, 30)
    await much_later(exchange)
    assert exchange.reason is None


async def test_a_client_that_hangs_up_in_the_middle_is_gone() -> None:
    """No answer can reach it."""
    with pytest.raises(ClientGone):
        await exchange_of(part(b"x"), GONE).read(10)


async def test_a_body_that_was_cut_short_is_refused() -> None:
    """A server that can tell says so in ASGI's state; the client may still read."""
    exchange = exchange_of(part(b"x"), length="10", state={TRUNCATED: True})
    rejection = await rejection_of(exchange)
    assert rejection.status == 400
    assert rejection.message == "the request body ended before its announced length"
    assert ("connection", "close") in rejection.headers


async def test_an_interruption_ends_the_reading() -> None:
    """As when the server shuts down."""
    exchange = exchange_of(part(b"x"))
    reading = asyncio.create_task(exchange.read(10))
    await turn()
    exchange.interrupt(Rejection(503, "shutting down"))
    with pytest.raises(Rejection, match="shutting down"):
        await reading


async def test_a_cancellation_ends_the_reading() -> None:
    """And leaves no clock running."""
    exchange = exchange_of(part(b"x"))
    reading = asyncio.create_task(exchange.read(10, 30))
    await turn()
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    await much_later(exchange)
    assert exchange.reason is None


async def test_many_parts_are_joined_once() -> None:
    """Thousands of them are no quadratic work, and none is lost."""
    exchange = exchange_of(*(part(b"%05d" % number) for number in range(20_000)), part(b"", more=False))
    assert await exchange.read(100_000) == b"".join(b"%05d" % number for number in range(20_000))


async def test_a_body_that_is_there_needs_no_clock() -> None:
    """Nor a turn of the loop."""
    exchange = exchange_of(part(b"a"), part(b"b", more=False))
    with patch.object(exchange.loop, "call_later", side_effect=AssertionError), pytest.raises(StopIteration) as ended:
        exchange.read(10).send(None)
    assert ended.value.value == b"ab"


async def test_a_body_that_comes_in_waits_is_read_whole() -> None:
    """The task waits for each as it would have done."""
    inbox = asyncio.Queue[MutableMapping[str, Any]]()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.sleep(0)
        return await inbox.get()

    exchange = Exchange(TEST, {"type": "http", "headers": []}, receive)
    reading = asyncio.create_task(exchange.read(10))
    for message in (part(b"a"), part(b"b"), part(b"c", more=False)):
        await turn()
        inbox.put_nowait(message)
    assert await reading == b"abc"


async def test_a_request_that_was_interrupted_before_is_not_read() -> None:
    """The reason is raised at once."""
    exchange = exchange_of(part(b"a", more=False))
    exchange.interrupt(Rejection(503, "shutting down"))
    with pytest.raises(Rejection, match="shutting down"):
        await exchange.read(10)


async def test_a_server_hears_how_its_wait_ended() -> None:
    """One that gives a client up after a while can say so, at the first part of a body as at any other."""

    async def receive() -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(0.01):
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        except TimeoutError:
            return GONE

    with pytest.raises(ClientGone):
        await Exchange(TEST, {"type": "http", "headers": []}, receive).read(10)


async def test_a_server_that_tidies_up_is_let() -> None:
    """What it awaits when its wait is cancelled is awaited, as a task group does in a middleware further out."""
    tidied = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            await turn()
            tidied.set()
            raise

    assert (await rejection_of(Exchange(TEST, {"type": "http", "headers": []}, receive), seconds=0.01)).status == 408
    assert tidied.is_set()
