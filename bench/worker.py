"""A mock worker: fixed answers over a bare asyncio protocol, to cost little and always the same."""

import asyncio
import gc
from typing import Final

import click
import httptools
import uvloop
from attrs import frozen

from bench.bodies import DONE, STATE, make_answer, make_context_answer, make_event

_COMMON: Final = b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\nserver: bench\r\n"


def _respond(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, _COMMON, len(body)) + body


_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\n" + _COMMON + b"content-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_ANSWER: Final = _respond(b"200 OK", make_answer())
_CONTEXT_ANSWER: Final = _respond(b"200 OK", make_context_answer())
_HEALTHY: Final = _respond(b"200 OK", b"{}")
_NO_HANDOFF: Final = _respond(b"400 Bad Request", b'{"message":"a generation request needs a handoff"}')


@frozen
class Pace:
    """What a stream is: `tokens` events, one every `delay` seconds, or as fast as they can be written."""

    tokens: int
    delay: float


class WorkerProtocol(asyncio.Protocol):
    """One connection of a gateway. What is asked for is told from the body's bytes; nothing is parsed."""

    _transport: asyncio.Transport

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []
        event = make_event()
        self._chunk = b"%x\r\n%b\r\n" % (len(event), event)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse what came in."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Answer."""
        body = b"".join(self._parts)
        self._parts = []
        if not body:
            self._transport.write(_HEALTHY)
        elif b'"context_only"' in body:
            self._transport.write(_CONTEXT_ANSWER)
        elif b'"model":"two"' in body and (b'"generation_only"' not in body or STATE.encode() not in body):
            self._transport.write(_NO_HANDOFF)
        elif b'"stream":true' in body:
            self._transport.write(_STREAM_HEAD)
            self._step(self._pace.tokens)
        else:
            self._transport.write(_ANSWER)

    def _step(self, left: int) -> None:
        """Send the next token of the stream, or its end."""
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))
            return
        self._transport.write(self._chunk)
        if self._pace.delay:
            self._loop.call_later(self._pace.delay, self._step, left - 1)
        else:
            self._loop.call_soon(self._step, left - 1)


async def serve(port: int, pace: Pace) -> None:
    """Serve on loopback until cancelled."""
    server = await asyncio.get_running_loop().create_server(lambda: WorkerProtocol(pace), "127.0.0.1", port)
    await server.serve_forever()


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--tokens", type=click.IntRange(1), default=100, show_default=True, help="Events of a stream.")
@click.option("--delay", type=click.FloatRange(0), default=0.0, show_default=True, help="Seconds between them.")
def main(port: int, tokens: int, delay: float) -> None:
    """Serve as a mock worker on 127.0.0.1, for one phase or for both."""
    gc.disable()  # nothing here makes cycles
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(port, Pace(tokens, delay)))


if __name__ == "__main__":
    main()
