"""The chain: what calling on means, and whose fault a fault was."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from attrs import frozen

from kernel import BytesReply, CallNext, ChainError, Exchange, Reply, Slot, StreamReply
from kernel.chain import compose
from kernel.testing import build_exchange

pytestmark = pytest.mark.anyio

TRAIL = Slot[list[str]]("trail")
ANSWER = BytesReply(b"done")


@frozen
class Step:
    """Notes its way in and out."""

    name: str

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Note both ways."""
        exchange[TRAIL].append(f"{self.name} in")
        reply = await call_next(exchange)
        exchange[TRAIL].append(f"{self.name} out")
        return reply


async def answer(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer at once."""
    return ANSWER


async def fall(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Raise."""
    raise ValueError("fallen")


async def twice(exchange: Exchange, call_next: CallNext) -> Reply:
    """Call on twice."""
    await call_next(exchange)
    return await call_next(exchange)


async def retry(exchange: Exchange, call_next: CallNext) -> Reply:
    """Call on again after an error."""
    try:
        return await call_next(exchange)
    except ValueError:
        return await call_next(exchange)


def chain_of(*plugins: tuple[str, object]) -> CallNext:
    """A chain of these plugins."""
    return compose([(name, plugin, False) for name, plugin in plugins])  # type: ignore[misc]


async def test_the_way_out_mirrors_the_way_in() -> None:
    """The first plugin is the outermost in both directions."""
    exchange = build_exchange()
    exchange[TRAIL] = []
    chain = chain_of(("a", Step("a")), ("b", Step("b")), ("answer", answer))
    assert await chain(exchange) is ANSWER
    assert exchange[TRAIL] == ["a in", "b in", "b out", "a out"]


async def test_a_plugin_need_not_call_on() -> None:
    """What stands further in is then not run."""
    exchange = build_exchange()
    exchange[TRAIL] = []
    assert await chain_of(("answer", answer), ("a", Step("a")))(exchange) is ANSWER
    assert exchange[TRAIL] == []


async def test_one_chain_serves_many_exchanges_at_once() -> None:
    """What the chain knows of a request is in the exchange alone."""
    chain = chain_of(("a", Step("a")), ("answer", answer))
    exchanges = [build_exchange() for _ in range(20)]
    for exchange in exchanges:
        exchange[TRAIL] = []
    await asyncio.gather(*(chain(exchange) for exchange in exchanges))
    assert all(exchange[TRAIL] == ["a in", "a out"] for exchange in exchanges)


@pytest.mark.parametrize(("caller", "inner"), [(twice, answer), (retry, fall)])
async def test_calling_on_twice_is_a_fault_of_the_caller(caller: object, inner: object) -> None:
    """Also where the first call raised: whoever retries does so below the chain."""
    exchange = build_exchange()
    exchange[TRAIL] = []
    chain = chain_of(("outer", Step("outer")), ("greedy", caller), ("inner", inner))
    with pytest.raises(ChainError) as caught:
        await chain(exchange)
    assert str(caught.value) == "plugin 'greedy' called call_next twice"
    assert caught.value.plugin == "greedy"
    assert exchange.culprit(caught.value) == "greedy"


async def test_two_calls_at_once_are_two_calls() -> None:
    """A plugin cannot hedge through the chain."""

    async def both(exchange: Exchange, call_next: CallNext) -> Reply:
        first, second = await asyncio.gather(call_next(exchange), call_next(exchange), return_exceptions=True)
        assert first is ANSWER
        assert isinstance(second, ChainError)
        raise second

    with pytest.raises(ChainError, match="plugin 'both' called call_next twice"):
        await chain_of(("both", both), ("answer", answer))(build_exchange())


async def test_the_innermost_plugin_cannot_call_on() -> None:
    """It is told so by name."""
    exchange = build_exchange()
    exchange[TRAIL] = []
    with pytest.raises(ChainError, match="plugin 'a' called call_next as the innermost plugin") as caught:
        await chain_of(("a", Step("a")))(exchange)
    assert caught.value.plugin == "a"


async def test_a_chain_without_plugins_is_an_error() -> None:
    """And not a hang or an empty answer."""
    with pytest.raises(ChainError):
        await chain_of()(build_exchange())


async def test_calling_on_after_the_return_is_allowed_once() -> None:
    """A stream may begin before the rest of the chain has run, and run it from inside."""

    async def early(exchange: Exchange, call_next: CallNext) -> Reply:
        async def source() -> AsyncIterator[bytes]:
            yield b"ping"
            reply = await call_next(exchange)
            assert isinstance(reply, BytesReply)
            yield reply.body

        return StreamReply(source())

    reply = await chain_of(("early", early), ("answer", answer))(build_exchange())
    assert isinstance(reply, StreamReply)
    assert [chunk async for chunk in reply.source] == [b"ping", b"done"]
