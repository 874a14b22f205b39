"""Streams of real engines, shortened in the middle, as tests of several plugins use them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import orjson
from attrs import frozen

from plugins.endpoints import ENDPOINTS, Api

RECORDED: Final = Path(__file__).parent / "recorded" / "streams.json"
_ROWS: Final = {row.name: row for row in ENDPOINTS if isinstance(row, Api)}


@frozen
class Recorded:
    """One stream: where it was answered, and its events as they came."""

    name: str
    endpoint: Api
    events: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.events)


STREAMS: Final = {
    name: Recorded(name, _ROWS[told["endpoint"]], tuple(event.encode() for event in told["frames"]))
    for name, told in orjson.loads(RECORDED.read_bytes()).items()
}
WHOLE: Final = [stream for name, stream in STREAMS.items() if "fault" not in name]


def split(body: bytes) -> list[tuple[bytes, dict[str, object]]]:
    """The name and data of every event of a stream whose lines end in LF; the stream must be well-formed."""
    *events, rest = body.split(b"\n\n")
    assert rest in (b"", b"\n")
    found = []
    for event in events:
        lines = [line for line in event.split(b"\n") if line and not line.startswith(b":")]
        fields = dict(line.split(b": ", 1) for line in lines)
        assert {*fields} <= {b"event", b"data"}
        if fields.get(b"data", b"[DONE]") != b"[DONE]":
            found.append((fields.get(b"event", b""), orjson.loads(fields[b"data"])))
    return found


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    """A server on loopback that answers every request with this stream."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
