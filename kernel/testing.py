"""What a plugin's test needs: an exchange, a chain to run it through, and the bytes that a client would get."""

from collections.abc import AsyncIterator, Iterable, Sequence

from attrs import define, field

from kernel.chain import compose
from kernel.exchange import Endpoint, Exchange
from kernel.plugin import CallNext, Plugin
from kernel.race import Message
from kernel.reply import BytesReply, DataReply, Outcome, Reply, StreamReply
from kernel.wire import write_bytes, write_stream


def build_exchange(
    endpoint: Endpoint | None = None, *, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
) -> Exchange:
    """An exchange whose client sends `body` at once and then waits; needs a running event loop."""
    endpoint = endpoint or Endpoint("test", "/test")
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await exchange.loop.create_future()

    scope = {"type": "http", "method": endpoint.method, "path": endpoint.path, "headers": raw, "query_string": b""}
    return (exchange := Exchange(endpoint, scope, receive))


async def run_chain(plugins: Sequence[Plugin], exchange: Exchange, reply: Reply | None = None) -> Reply:
    """Run `exchange` through `plugins`, outermost first; innermost stands one that answers `reply`, or `{}`."""

    async def answer(_exchange: Exchange, _call_next: CallNext) -> Reply:
        return reply if reply is not None else DataReply({})

    return await compose([(type(plugin).__name__, plugin, False) for plugin in (*plugins, answer)])(exchange)


@define
class Written:
    """What a client got: the body and its chunks, whether it was ended, and a stream's outcome."""

    chunks: list[bytes] = field(factory=list)
    body: bytes = b""
    ended: bool = False
    outcome: Outcome | None = None


async def read_reply(reply: Reply, exchange: Exchange) -> Written:
    """Write `reply` as the kernel would, to a client that reads everything, and release the exchange."""
    written = Written()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            written.chunks.append(message["body"])
            written.body += message["body"]
            written.ended = not message.get("more_body", False)

    match reply:
        case StreamReply():
            written.outcome = await write_stream(reply, send, reply.headers, exchange)
        case BytesReply():
            await write_bytes(reply, send, [*reply.headers])
        case DataReply():
            raise TypeError("a DataReply has no bytes yet: put encode_reply into the chain")
    await exchange.release()
    return written


async def stream_of(*chunks: bytes | Exception) -> AsyncIterator[bytes]:
    """A source for a StreamReply: gives the chunks, raises an exception where one stands."""
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk
