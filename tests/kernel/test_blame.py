"""Whose fault it was: every exception and every stream is put down to the plugin that it came from."""

import pytest
from attrs import frozen

from kernel import BytesReply, CallNext, ChainError, ClientGone, Exchange, Rejection, Reply, Slot, StreamReply
from kernel.chain import compose
from kernel.testing import build_exchange, stream_of

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


async def retry(exchange: Exchange, call_next: CallNext) -> Reply:
    """Call on again after an error."""
    try:
        return await call_next(exchange)
    except ValueError:
        return await call_next(exchange)


def chain_of(*plugins: tuple[str, object]) -> CallNext:
    """A chain of these plugins."""
    return compose([(name, plugin, False) for name, plugin in plugins])  # type: ignore[misc]


@pytest.mark.parametrize("value", [None, "text", b"bytes", {"a": 1}, BytesReply])
async def test_what_is_no_reply_is_a_fault_of_who_returned_it(value: object) -> None:
    """The error names plugin and type."""

    async def wrong(_exchange: Exchange, _call_next: CallNext) -> object:
        return value

    exchange = build_exchange()
    with pytest.raises(ChainError) as caught:
        await chain_of(("outer", retry), ("wrong", wrong))(exchange)
    assert str(caught.value) == f"plugin 'wrong' returned {type(value).__name__}, not a Reply"
    assert exchange.culprit(caught.value) == "wrong"


@pytest.mark.parametrize("error", [ValueError("x"), Rejection(400, "no"), ClientGone("gone")])
async def test_an_exception_is_blamed_on_the_plugin_that_it_came_from(error: Exception) -> None:
    """Plugins further out that let it pass are not named."""

    async def wrong(_exchange: Exchange, _call_next: CallNext) -> Reply:
        raise error

    exchange = build_exchange()
    exchange[TRAIL] = []
    with pytest.raises(type(error)):
        await chain_of(("outer", Step("outer")), ("wrong", wrong), ("answer", answer))(exchange)
    assert exchange.culprit(error) == "wrong"
    assert exchange.culprit(ValueError("x")) is None


async def test_a_translated_exception_is_blamed_on_the_translator() -> None:
    """It is another error, and the one who raised it knows why."""

    async def translate(exchange: Exchange, call_next: CallNext) -> Reply:
        try:
            return await call_next(exchange)
        except ValueError as error:
            raise KeyError("other") from error

    exchange = build_exchange()
    with pytest.raises(KeyError) as caught:
        await chain_of(("translate", translate), ("fall", fall))(exchange)
    assert exchange.culprit(caught.value) == "translate"


async def test_a_stream_belongs_to_the_plugin_that_made_it() -> None:
    """Passing it on or attaching to it changes that no more."""
    stream = StreamReply(stream_of(b"x"))

    async def attach(exchange: Exchange, call_next: CallNext) -> Reply:
        reply = await call_next(exchange)
        assert isinstance(reply, StreamReply)
        reply.attach(end=lambda _: None)
        return reply

    async def make(_exchange: Exchange, _call_next: CallNext) -> Reply:
        stream.attach(check=lambda: None)
        return stream

    assert await chain_of(("outer", attach), ("inner", attach), ("make", make))(build_exchange()) is stream
    assert stream.owner == "make"
    assert [link.owner for link in stream.links] == ["make", "inner", "outer"]


async def test_a_timed_chain_notes_seconds_from_the_inside_out() -> None:
    """Also of plugins that raise."""

    async def name_it(exchange: Exchange, call_next: CallNext) -> Reply:
        return await call_next(exchange)

    exchange = build_exchange()
    exchange.timings = []
    chain = compose([("outer", name_it, False), ("fall", fall, False)], timed=True)
    with pytest.raises(ValueError, match="fallen"):
        await chain(exchange)
    assert [name for name, _ in exchange.timings] == ["fall", "outer"]
    inner, outer = (seconds for _, seconds in exchange.timings)
    assert 0 <= inner <= outer


async def test_a_timed_chain_needs_no_list_to_write_to() -> None:
    """An exchange that is not sampled is not timed."""
    assert await compose([("answer", answer, False)], timed=True)(build_exchange()) is ANSWER
