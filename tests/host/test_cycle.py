"""One request with its answer, whose head goes out with its first bytes, or alone when those do not come at once."""

import asyncio
from typing import Any

import pytest
from attrs import define, field
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from plugins.host.cycle import Cycle

pytestmark = pytest.mark.anyio


@define(eq=False)
class Packets:
    """A transport that keeps apart what is written at once."""

    written: list[bytes] = field(factory=list)
    closing: bool = False

    def write(self, data: bytes) -> None:
        """Write bytes."""
        assert not self.closing
        self.written.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        """Write several parts at once."""
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        """Whether it closes."""
        return self.closing


class Line:
    """A connection that notes what its cycles tell it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.packets = Packets()
        transport: Any = self.packets
        self.transport: asyncio.Transport = transport
        self.flow = FlowControl(transport)
        self.server_state = ServerState()
        self.tasks = self.server_state.tasks
        self.done = self.loop.create_future()
        self.done.set_result(None)
        self.told: list[str] = []

    def close(self) -> None:
        """Note that it is to be closed."""
        self.told.append("close")

    def on_response_complete(self) -> None:
        """Note that an answer is out."""
        self.told.append("complete")

    def cycle(self, method: str = "POST", *headers: tuple[bytes, bytes], keep_alive: bool = True) -> Cycle:
        """A request on it."""
        return Cycle(self, {"method": method, "headers": [*headers]}, keep_alive=keep_alive)


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    """The message that begins an answer."""
    return {"type": "http.response.start", "status": status, "headers": [*headers]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    """A message with a part of an answer."""
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(size: int) -> tuple[bytes, bytes]:
    """The header that tells a length."""
    return b"content-length", b"%d" % size


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 1024 * 1024])
async def test_a_head_and_its_body_are_one_packet(size: int) -> None:
    """The body of an answer that tells its length may come later."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start(length(size)))
    await asyncio.sleep(0)
    assert line.packets.written == []
    await cycle.send(body(b"x" * size))
    await asyncio.sleep(0)
    assert line.packets.written == [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size]
    assert line.told == ["complete"]


async def test_a_head_and_its_first_chunk_are_one_packet() -> None:
    """Whatever is written after them is not held back."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start())
    await cycle.send(body(b"first", more=True))
    await cycle.send(body(b"more", more=True))
    await cycle.send(body(b""))
    await asyncio.sleep(0)
    assert line.packets.written == [CHUNKED + b"5\r\nfirst\r\n", b"4\r\nmore\r\n", b"0\r\n\r\n"]


async def test_a_head_waits_for_one_turn_of_the_loop() -> None:
    """A stream that has begun is one for its client, too."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start())
    assert line.packets.written == []
    await asyncio.sleep(0)
    assert line.packets.written == [CHUNKED]
    await cycle.send(body(b"", more=True))
    await cycle.send(body(b"last"))
    assert line.packets.written == [CHUNKED, b"4\r\nlast\r\n0\r\n\r\n"]


async def test_a_head_can_be_written_at_once() -> None:
    """Before the connection closes."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start())
    cycle.flush()
    cycle.flush()
    await asyncio.sleep(0)
    assert line.packets.written == [CHUNKED]


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    """A head that was held back is lost with it."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start())
    line.packets.closing = True
    await asyncio.sleep(0)
    cycle.disconnected = True
    await cycle.send(body(b"last"))
    assert line.packets.written == []
    assert line.told == []


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body(status: int) -> None:
    """It has neither length nor chunks."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start(status=status))
    await cycle.send(body(b""))
    (head,) = line.packets.written
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.count(b"\r\n") == 2


@pytest.mark.parametrize("header", [(), (length(7),), ((b"transfer-encoding", b"chunked"),)])
async def test_an_answer_to_head(header: tuple[tuple[bytes, bytes], ...]) -> None:
    """It is the head alone, whatever is sent."""
    line = Line()
    cycle = line.cycle("HEAD")
    await cycle.send(start(*header))
    await cycle.send(body(b"1234", more=True))
    await cycle.send(body(b"567"))
    (head,) = line.packets.written
    assert head == b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in header) + b"\r\n"
    assert line.told == ["complete"]


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("value", [None, b"close", b"x, Close", b"keep-alive"])
async def test_a_connection_that_closes(value: bytes | None, keep_alive: bool) -> None:
    """Either side may wish it, and the answer says so, once."""
    line = Line()
    cycle = line.cycle(keep_alive=keep_alive)
    await cycle.send(start(*([(b"connection", value)] if value is not None else []), length(1)))
    await cycle.send(body(b"x"))
    closes = not keep_alive or b"close" in (value or b"").lower()
    assert line.told == (["close", "complete"] if closes else ["complete"])
    assert line.packets.written[0].lower().count(b"close") == closes


@pytest.mark.parametrize(
    "messages",
    [
        [body(b"first")],
        [start(), start()],
        [start(length(1)), body(b"12")],
        [start(length(3)), body(b"12")],
        [start(), body(b"x"), body(b"y")],
        [start((b"x-a", b"b\r\nset-cookie: c"))],
        [start((b"x a", b"b"))],
    ],
)
async def test_what_cannot_be_sent(messages: list[dict[str, Any]]) -> None:
    """The application hears that it is wrong."""
    cycle = Line().cycle()
    for message in messages[:-1]:
        await cycle.send(message)
    with pytest.raises(RuntimeError):
        await cycle.send(messages[-1])


async def test_an_application_waits_for_a_client_that_takes_too_little() -> None:
    """And goes on when it takes more, or hears nothing of it when it has gone."""
    line = Line()
    cycle = line.cycle()
    await cycle.send(start())
    line.flow.pause_writing()
    sending = [asyncio.ensure_future(cycle.send(body(data, more=True))) for data in (b"1", b"2")]
    await asyncio.sleep(0)
    assert line.packets.written == [CHUNKED]
    line.flow.resume_writing()
    await asyncio.gather(*sending)
    assert line.packets.written == [CHUNKED, b"1\r\n1\r\n", b"1\r\n2\r\n"]
    line.flow.pause_writing()
    late = asyncio.ensure_future(cycle.send(body(b"3")))
    await asyncio.sleep(0)
    cycle.disconnected = True
    line.flow.resume_writing()
    await late
    assert line.packets.written == [CHUNKED, b"1\r\n1\r\n", b"1\r\n2\r\n"]


async def test_the_body_is_received_as_it_comes() -> None:
    """What came since the last time is one part."""
    cycle = Line().cycle()
    receiving = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not receiving.done()
    for data in (b"ab", b"cd"):
        cycle.take(data)
    cycle.tell()
    assert await receiving == {"type": "http.request", "body": b"abcd", "more_body": True}
    cycle.take(b"e")
    cycle.more_body = False
    cycle.tell()
    assert await cycle.receive() == {"type": "http.request", "body": b"e", "more_body": False}


async def test_all_that_wait_hear_that_the_client_has_gone() -> None:
    """And who asks later as well."""
    cycle = Line().cycle()
    waiting = [asyncio.ensure_future(cycle.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    cycle.disconnected = True
    cycle.tell()
    assert await asyncio.gather(*waiting, cycle.receive()) == [{"type": "http.disconnect"}] * 3


async def test_news_outlives_one_who_does_not_wait_any_more() -> None:
    """Whoever asks next hears it."""
    cycle = Line().cycle()
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    cycle.take(b"a")
    cycle.tell()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert (await cycle.receive())["body"] == b"a"


@pytest.mark.parametrize("whole", [True, False])
async def test_a_client_is_told_to_go_on_once_and_only_if_it_waits(whole: bool) -> None:
    """One that has sent its body at once need not hear it."""
    line = Line()
    cycle = line.cycle("POST", (b"expect", b"100-Continue"))
    if whole:
        cycle.take(b"body")
        cycle.more_body = False
        cycle.tell()
    receiving = [asyncio.ensure_future(cycle.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    assert line.packets.written == ([] if whole else [b"HTTP/1.1 100 Continue\r\n\r\n"])
    cycle.disconnected = True
    cycle.tell()
    await asyncio.gather(*receiving)
