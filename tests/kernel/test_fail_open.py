"""Fail-open plugins: the chain goes on without them, whatever they raise and whenever."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kernel import BytesReply, CallNext, ChainError, ClientGone, Exchange, Rejection, Reply, StreamReply
from kernel.chain import compose
from kernel.testing import build_exchange, stream_of

pytestmark = pytest.mark.anyio

ANSWER = BytesReply(b"done")
Call = Callable[[Exchange, CallNext], Awaitable[Any]]


async def answer(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer at once."""
    return ANSWER


async def fall(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Raise."""
    raise KeyError("inner")


async def raise_before(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Raise before calling on."""
    raise ValueError("observer")


async def raise_after(exchange: Exchange, call_next: CallNext) -> Reply:
    """Raise after calling on."""
    await call_next(exchange)
    raise ValueError("observer")


async def return_nothing_before(_exchange: Exchange, _call_next: CallNext) -> Any:
    """Return nothing, without calling on."""
    return None


async def return_nothing_after(exchange: Exchange, call_next: CallNext) -> Any:
    """Call on and return nothing."""
    await call_next(exchange)


async def raise_in_except(exchange: Exchange, call_next: CallNext) -> Reply:
    """Raise while an inner error is handled."""
    try:
        return await call_next(exchange)
    except KeyError:
        raise ValueError("observer") from None


async def pass_on(exchange: Exchange, call_next: CallNext) -> Reply:
    """Pass the exchange on."""
    return await call_next(exchange)


def chain_of(observer: Call, inner: Call = answer) -> CallNext:
    """A fail-open plugin around another."""
    plugins: list[Any] = [("observer", observer, True), ("inner", inner, False)]
    return compose(plugins)


@pytest.mark.parametrize("observer", [raise_before, raise_after, return_nothing_before, return_nothing_after, pass_on])
async def test_the_reply_of_the_inner_chain_is_used(observer: Call) -> None:
    """Before calling on the chain is run without the plugin, afterwards its reply is at hand."""
    assert await chain_of(observer)(build_exchange()) is ANSWER


async def test_the_fault_is_logged_once_with_the_plugins_name(logged: list[Any]) -> None:
    """That the chain went on is said too."""
    await chain_of(raise_before)(build_exchange())
    assert [(line["event"], line["plugin"], line["went_on"]) for line in logged] == [
        ("plugin.failed", "observer", True)
    ]


@pytest.mark.parametrize("observer", [raise_before, raise_after, raise_in_except, return_nothing_after, pass_on])
async def test_an_error_of_the_inner_chain_is_not_hidden(observer: Call) -> None:
    """It goes on outwards, blamed on the plugin that it came from."""
    exchange = build_exchange()
    with pytest.raises(KeyError, match="inner") as caught:
        await chain_of(observer, fall)(exchange)
    assert exchange.culprit(caught.value) == "inner"


async def test_calling_on_twice_is_no_fault_to_go_on_from() -> None:
    """It would hide a broken contract: the error names the plugin as it does for any other."""

    async def twice(exchange: Exchange, call_next: CallNext) -> Reply:
        await call_next(exchange)
        return await call_next(exchange)

    with pytest.raises(ChainError, match="plugin 'observer' called call_next twice"):
        await chain_of(twice)(build_exchange())


async def test_the_inner_chain_runs_once() -> None:
    """A plugin that fails after calling on is no reason for a second answer."""
    runs: list[str] = []

    async def count(_exchange: Exchange, _call_next: CallNext) -> Reply:
        runs.append("run")
        return ANSWER

    for observer in (raise_before, raise_after, return_nothing_before, return_nothing_after):
        await chain_of(observer, count)(build_exchange())
    assert len(runs) == 4


@pytest.mark.parametrize("error", [Rejection(429, "later"), ClientGone("gone")])
async def test_a_rejection_is_not_a_fault(error: Exception) -> None:
    """A fail-open plugin may decline, and may notice that the client left."""

    async def decline(_exchange: Exchange, _call_next: CallNext) -> Reply:
        raise error

    with pytest.raises(type(error)):
        await chain_of(decline)(build_exchange())


async def test_a_swallowed_error_can_be_answered() -> None:
    """A fail-open plugin may turn an inner error into a reply of its own."""
    own = BytesReply(b"own")

    async def answer_it(exchange: Exchange, call_next: CallNext) -> Reply:
        try:
            return await call_next(exchange)
        except KeyError:
            return own

    assert await chain_of(answer_it, fall)(build_exchange()) is own


async def test_a_cancellation_is_no_fault() -> None:
    """BaseException passes through every plugin."""

    async def cancelled(_exchange: Exchange, _call_next: CallNext) -> Reply:
        raise SystemExit

    with pytest.raises(SystemExit):
        await chain_of(cancelled)(build_exchange())


async def test_links_attached_before_the_fault_stay_and_fail_open() -> None:
    """They are known as the plugin's own."""
    stream = StreamReply(stream_of(b"x"))

    async def make(_exchange: Exchange, _call_next: CallNext) -> Reply:
        return stream

    async def attach(exchange: Exchange, call_next: CallNext) -> Reply:
        reply = await call_next(exchange)
        assert isinstance(reply, StreamReply)
        reply.attach(end=lambda _: None)
        raise ValueError("observer")

    assert await chain_of(attach, make)(build_exchange()) is stream
    assert [(link.owner, link.fail_open) for link in stream.links] == [("observer", True)]
