"""Neighbours in parts, in a chain: what is joined, whose streams are whose, and what is as it was."""

from typing import Any

import pytest

from kernel import CallNext, ClientGone, Exchange, Rejection, Reply, StreamReply
from kernel.chain import compose
from kernel.testing import stream_of
from plugins.hooks import Hooks
from tests.plugins.hooked import ANSWER, FAULT, Scene, fall

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("timed", [False, True])
async def test_an_observer_that_fails_on_the_way_in_is_asked_further_on(logged: list[Any], *, timed: bool) -> None:
    """Each part is forgiven by itself; the log says so once."""
    scene = Scene(on_request=fall, fail_open=True)
    assert await scene.run(timed=timed) == "answer | a in, b in, c in, inner, c out, b out, a out"
    assert [(line["event"], line["plugin"], line["went_on"]) for line in logged] == [("plugin.failed", "b", True)]


async def test_no_coroutine_is_made_for_a_neighbour() -> None:
    """The kernel calls one plugin for all that stand side by side."""
    scene = Scene()
    depths: list[int] = []

    async def innermost(exchange: Exchange, _call_next: CallNext) -> Reply:
        depths.append(exchange.depth)
        return ANSWER

    scene.plugins[-1] = ("inner", innermost, False)
    await scene.run()
    assert depths == [2]


async def test_who_calls_on_stands_between_neighbours() -> None:
    """What is further in is run by it."""
    scene = Scene()

    async def between(exchange: Exchange, call_next: CallNext) -> Reply:
        scene.trail.append("between in")
        reply = await call_next(exchange)
        scene.trail.append("between out")
        return reply

    scene.plugins.insert(1, ("between", between, False))
    seen = "a in, between in, b in, c in, inner, c out, b out, between out, a out"
    assert await scene.run() == f"answer | {seen}"


async def test_the_innermost_of_neighbours_cannot_call_on() -> None:
    """It is the one that is told so."""
    scene = Scene()
    del scene.plugins[-1]
    assert (await scene.run()).startswith("ChainError of c |")


async def test_a_class_with_a_call_of_its_own_is_called() -> None:
    """Its parts are its own affair."""

    class Caller(Hooks):
        def on_request(self, exchange: Exchange) -> None:
            raise FAULT

        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            return await call_next(exchange)

    scene = Scene()
    scene.plugins.insert(1, ("caller", Caller(), False))
    assert (await scene.run()).startswith("answer |")


async def test_a_stream_and_its_links_have_their_owners() -> None:
    """Those of who made it and of all who attached to it, also of an observer that failed then."""

    def attach(reply: Reply) -> Reply:
        assert isinstance(reply, StreamReply)
        reply.attach(end=lambda _: None)
        raise FAULT

    async def stream() -> Reply:
        return StreamReply(stream_of(b"x"))

    scene = Scene(inner=stream, on_reply=attach, fail_open=True)
    reply = await compose(scene.plugins)(scene.exchange)
    assert isinstance(reply, StreamReply)
    assert reply.owner == "inner"
    assert [(link.owner, link.fail_open) for link in reply.links] == [("b", True)]
    own = Scene(on_request=lambda: StreamReply(stream_of(b"x")))
    reply = await compose(own.plugins)(own.exchange)
    assert isinstance(reply, StreamReply)
    assert reply.owner == "b"


@pytest.mark.parametrize("error", [ClientGone("gone"), Rejection(400, "no")])
async def test_an_error_on_purpose_comes_out_as_it_is(error: Exception) -> None:
    """The same object."""

    async def leave() -> Reply:
        raise error

    scene = Scene(inner=leave)
    with pytest.raises(type(error)) as caught:
        await compose(scene.plugins)(scene.exchange)
    assert caught.value is error
