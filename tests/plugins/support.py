"""What tests of the standard plugins share: requests, endings, streams, and what the metrics say of them."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import orjson
from attrs import frozen

from kernel import CallNext, ClientGone, Endpoint, Exchange, Plugin, Reply, StreamReply
from kernel.testing import Written, build_exchange, read_reply, run_chain
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import REGISTRY
from plugins.slots import MODEL, PAYLOAD, SERVED, STREAM, TIMING, Payload, Served

CONTENTS = ("Hel", "lo, [DONE] is", ' not\\ndata: [DONE]\\n\\nyet, nor is {\\"error\\": 1}', " caf\u00e9 \u2603")


def chunk(content: str, finish: str = "null") -> bytes:
    """One event of a chat stream; `content` is text as JSON escapes it."""
    choice = f'{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{finish}}}'
    return f'data: {{"id":"c-1","object":"chat.completion.chunk","choices":[{choice}]}}\n\n'.encode()


DONE = b"data: [DONE]\n\n"
EVENTS = (*(chunk(content) for content in CONTENTS), chunk("", '"stop"'), DONE)
CHAT_STREAM = b"".join(EVENTS)
"""A whole chat stream whose text does its best to look like the end of one."""


def chat(**fields: Any) -> dict[str, Any]:
    """A chat request's data."""
    return {"model": "m", "messages": [{"role": "user", "content": "Say hello"}], **fields}


def parsed(
    data: dict[str, Any] | bytes | None = None,
    *,
    endpoint: Endpoint = CHAT_COMPLETIONS,
    headers: Iterable[tuple[str, str]] = (),
) -> Exchange:
    """An exchange as `parse_request` leaves it."""
    raw = data if isinstance(data, bytes) else orjson.dumps(chat() if data is None else data)
    exchange = build_exchange(endpoint, body=raw, headers=headers)
    exchange[PAYLOAD] = Payload(raw, orjson.loads(raw))
    exchange[MODEL] = "m"
    exchange[STREAM] = bool(exchange[PAYLOAD].data.get("stream"))
    return exchange


@frozen(eq=False)
class Worker:
    """Stands where `dispatch` does: stamps what it stamps, then answers or raises."""

    ending: Reply | BaseException
    served: bool = True

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """End the chain."""
        if self.served:
            exchange[SERVED] = Served("m", "openai", ["http://127.0.0.1:9"])
            timing = exchange.get(TIMING)
            if timing is not None:
                timing.dispatched = timing.answered = monotonic()
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


async def serve(exchange: Exchange, *plugins: Plugin) -> Written:
    """Run a chain and write its reply as the kernel would; whatever happens, the exchange is released."""
    try:
        return await read_reply(await run_chain(plugins, exchange), exchange)
    finally:
        await exchange.release()


def stream(*chunks: bytes | BaseException) -> StreamReply:
    """A stream of these chunks, up to an exception that its source raises."""

    async def source() -> AsyncIterator[bytes]:
        for part in chunks:
            if isinstance(part, BaseException):
                raise part
            yield part

    return StreamReply(source())


def left_in_stream(exchange: Exchange, *chunks: bytes) -> StreamReply:
    """A stream whose client hangs up after these chunks."""

    async def source() -> AsyncIterator[bytes]:
        for part in chunks:
            yield part
        exchange.interrupt(ClientGone("the client hung up"))
        await exchange.loop.create_future()

    return StreamReply(source())


def read_metrics() -> dict[str, float]:
    """Every count there is, by the name and the labels of its sample; of a histogram its number of observations."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if not sample.name.endswith(("_created", "_bucket", "_sum"))
        and not sample.name.startswith(("process_", "python_"))
    }


@contextmanager
def counting() -> Iterator[dict[str, float]]:
    """What the block changed in the metrics; filled in at its end."""
    before, changes = read_metrics(), dict[str, float]()
    yield changes
    after = read_metrics()
    changes |= {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
