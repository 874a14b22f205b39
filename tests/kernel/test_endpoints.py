"""Endpoints: a plugin that is for some of them is not called at others."""

import pytest

from kernel import BytesReply, CallNext, Endpoint, Exchange, Reply
from kernel.testing import build_exchange
from tests.kernel.support import Shelf, spec_of

pytestmark = pytest.mark.anyio

HERE = Endpoint("here", "/here")
THERE = Endpoint("there", "/there")


async def test_a_plugin_is_called_at_its_endpoints_alone(shelf: Shelf) -> None:
    """One that names none is called at all of them."""
    called: list[tuple[str, str]] = []

    async def some(exchange: Exchange, call_next: CallNext) -> Reply:
        called.append(("some", exchange.endpoint.name))
        return await call_next(exchange)

    async def every(exchange: Exchange, _call_next: CallNext) -> Reply:
        called.append(("every", exchange.endpoint.name))
        return BytesReply(b"")

    specs = spec_of("some", some, endpoints=frozenset((HERE,))), spec_of("every", every)
    runtime = shelf.runtime(*specs, endpoints=(HERE, THERE))
    await runtime.start()
    for endpoint in (HERE, THERE, HERE):
        exchange = build_exchange(endpoint)
        await runtime.serving.enter(exchange)(exchange)
        await exchange.release()
    await runtime.stop()

    assert called == [("some", "here"), ("every", "here"), ("every", "there"), ("some", "here"), ("every", "here")]
