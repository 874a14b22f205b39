"""The helpers for a plugin's own tests."""

import pytest
from attrs import frozen

from kernel import BytesReply, CallNext, ChainError, DataReply, Endpoint, Exchange, Rejection, Reply, StreamReply
from kernel.testing import build_exchange, read_reply, run_chain, stream_of

pytestmark = pytest.mark.anyio


@frozen
class TenantGate:
    """Declines without a header."""

    header: str = "x-tenant"

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Decline, or pass the exchange on."""
        if self.header not in exchange.headers:
            raise Rejection(401, f"missing {self.header} header")
        return await call_next(exchange)


async def test_a_plugin_is_tested_in_three_lines() -> None:
    """An exchange, the chain, an assertion."""
    exchange = build_exchange(headers=[("x-tenant", "a")])
    assert isinstance(await run_chain([TenantGate()], exchange), DataReply)
    with pytest.raises(Rejection, match="missing x-tenant header"):
        await run_chain([TenantGate()], build_exchange())


async def test_the_innermost_answer_can_be_chosen() -> None:
    """Without one it is an empty object."""
    reply = BytesReply(b"x")
    exchange = build_exchange(headers=[("x-tenant", "a")])
    assert await run_chain([TenantGate()], exchange, reply) is reply
    answer = await run_chain([], build_exchange())
    assert isinstance(answer, DataReply)
    assert answer.data == {}


async def test_a_broken_plugin_is_named_by_its_class() -> None:
    """The contract of the chain holds in tests, too."""

    @frozen
    class Greedy:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            await call_next(exchange)
            return await call_next(exchange)

    with pytest.raises(ChainError, match="plugin 'Greedy' called call_next twice"):
        await run_chain([Greedy()], build_exchange())


async def test_an_exchange_has_what_it_was_given() -> None:
    """Endpoint, headers in any case, body."""
    endpoint = Endpoint("read", "/thing", "GET")
    exchange = build_exchange(endpoint, body=b"body", headers=[("X-A", "1")])
    assert exchange.endpoint is endpoint
    assert (exchange.scope["method"], exchange.scope["path"]) == ("GET", "/thing")
    assert exchange.headers["x-a"] == "1"
    assert await exchange.read(10) == b"body"


async def test_a_reply_is_read_as_a_client_would() -> None:
    """And the exchange is released."""
    released: list[str] = []
    for reply, chunks in ((BytesReply(b"x"), [b"x"]), (StreamReply(stream_of(b"a", b"b")), [b"a", b"b", b""])):
        exchange = build_exchange()
        exchange.resources.push(lambda: released.append("released"))
        written = await read_reply(reply, exchange)
        assert (written.chunks, written.ended) == (chunks, True)
        assert written.body == b"".join(chunks)
    assert len(released) == 2


async def test_data_has_no_bytes() -> None:
    """The error says what is missing."""
    with pytest.raises(TypeError, match="put encode_reply into the chain"):
        await read_reply(DataReply({}), build_exchange())


async def test_a_source_raises_where_an_exception_stands() -> None:
    """After the chunks before it."""
    source = stream_of(b"a", ValueError("broken"), b"b")
    assert await anext(source) == b"a"
    with pytest.raises(ValueError, match="broken"):
        await anext(source)
