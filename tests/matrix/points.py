"""The fault points: where each strikes, what is done to make it strike, and for how long the kernel waits."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

from attrs import frozen

from plugins.dispatch.embedded.stub.faults import FOREVER
from tests.host.wire import Answer
from tests.matrix.deaf import deaf
from tests.matrix.setups import Limits, Setup
from tests.matrix.world import World, until

Act = Callable[[World], Awaitable[Answer | None]]
"""Does one request to its end, and gives what its client got."""

HASTY: Final = Limits(read=0.2, total=0.2)
IMPATIENT: Final = Limits(grace=0.0)

DEADLINE: Final = "x-request-timeout: 0.5"
"""Long enough to come to where a worker says nothing more."""

_ONCE: Final = ("stale", "dies once")

EVENTS: Final = 3
"""How much of a stream comes before it breaks in the middle: a chat's role and a token or two."""


@frozen(eq=False)
class Point:
    """A fault point; `whole` and `streamed` say which answers it can strike.

    One with `signals` has the same outcome for every API, one that is `alike` over every transport as well.
    """

    name: str
    act: Act
    limits: Limits
    whole: bool = True
    streamed: bool = True
    signals: bool = False
    alike: bool = False


def points(setup: Setup) -> Iterator[Point]:
    """All fault points of an engine."""
    roles = {"worker": "both"} if len(setup.roles) == 1 else {role: role for role in setup.roles}
    last = list(roles)[-1]
    for name, role in roles.items():
        yield from _answers(name, role)
        yield from _departures(name, role)
        yield from _shutdowns(name, role)
        yield from _deadlines(name, role)
    yield from _streams(last, roles[last])
    if setup.family == "relay":
        yield from _between()


def replaceable(setup: Setup) -> Iterator[Point]:
    """The fault points at which another worker may be able to help."""
    roles = {"worker": "both"} if len(setup.roles) == 1 else {role: role for role in setup.roles}
    for name, role in roles.items():
        yield from (point for point in _answers(name, role) if not point.name.endswith((*_ONCE, "no handoff")))


def _answers(name: str, role: str) -> Iterator[Point]:
    """What a worker can do to a request before it has said anything."""

    def point(what: str, kind: str, limits: Limits | None = None, times: int = FOREVER, **fields: Any) -> Point:
        return Point(f"{name} {what}", partial(_suffer, role, kind, {"times": times, **fields}), limits or Limits())

    yield point("refused", "refuse")
    for status in (400, 429, 500, 503):
        yield point(str(status), "status", status=status)
    yield point("hangs", "hang", HASTY)
    yield point("dies before headers", "die_before_headers")
    yield point("dies once", "die_before_headers", times=1)
    yield point("dies after headers", "die_after_headers")
    yield point("cut at once", "cut_mid_event", after=0)
    yield point("garbage", "garbage")
    yield Point(f"{name} stale", partial(_stale, role), Limits())
    if role == "context":
        yield point("no handoff", "no_handoff")


def _streams(name: str, role: str) -> Iterator[Point]:
    """What it can do to a stream that has begun; those that only cut or stall are done to whole answers, too."""

    def point(what: str, kind: str, limits: Limits | None = None, *, whole: bool = False, **fields: Any) -> Point:
        return Point(f"{name} {what}", partial(_suffer, role, kind, fields), limits or Limits(), whole=whole)

    yield point("cut in mid-stream", "cut_mid_event", after=EVENTS, whole=True)
    yield point("stalls in mid-stream", "stall", HASTY, after=EVENTS, whole=True)
    yield point("error event at once", "error_event", after=0)
    yield point("error event in mid-stream", "error_event", after=EVENTS)
    yield point("ends without done", "end_without_done")
    yield point("wrong content type", "wrong_content_type")


def _departures(name: str, role: str) -> Iterator[Point]:
    yield Point(f"client leaves: {name} waits", partial(_leave, role, "hang"), Limits())
    if role != "context":
        yield Point(f"client leaves: {name} in mid-answer", partial(_leave, role, "stall"), Limits())


def _shutdowns(name: str, role: str) -> Iterator[Point]:
    for kind, where in (("hang", "waits"), ("stall", "in mid-answer")):
        if kind == "hang" or role != "context":
            in_time, late = partial(_shut_down, role, kind, True), partial(_shut_down, role, kind, False)
            yield Point(f"shutdown in time: {name} {where}", in_time, Limits(), signals=True)
            yield Point(f"shutdown too late: {name} {where}", late, IMPATIENT, signals=True)


def _deadlines(name: str, role: str) -> Iterator[Point]:
    """Where the whole request takes longer than its client has allowed."""
    for kind, where in (("hang", "waits"), ("stall", "in mid-answer")):
        if kind == "hang" or role != "context":
            yield Point(f"deadline: {name} {where}", partial(_take_too_long, role, kind), Limits(), alike=True)


def _between() -> Iterator[Point]:
    """Where the context phase is done and the generation worker does not have the request yet."""
    yield Point("limit between the legs", _too_long_between, Limits(connect=0.4))
    yield Point("client leaves: between the legs", _leave_between, Limits())
    yield Point("shutdown too late: between the legs", _shut_down_between, IMPATIENT, signals=True)


async def _suffer(role: str, kind: str, fields: dict[str, Any], world: World) -> Answer | None:
    world.stub(role).add_fault(kind, **fields)
    return await (await world.ask()).finish()


async def _stale(role: str, world: World) -> Answer | None:
    """Let a worker close a connection that was kept from an earlier request, just as the next one is on its way."""
    answer = await (await world.ask()).finish()
    assert answer is not None
    assert answer.status == 200
    await world.settle()
    world.begin()
    return await _suffer(role, "die_before_headers", {}, world)


async def _strike(role: str, kind: str, world: World) -> Any:
    """Send a request and return when it is stuck where it should be."""
    stub = world.stub(role)
    stub.add_fault(kind, after=EVENTS)
    client = await world.ask()
    if kind == "stall" and world.asked[1]:
        await client.read_until(b"data: ", EVENTS)
    else:
        await stub.until(lambda state: state.running == 1 and not stub.faults)
    return client


async def _leave(role: str, kind: str, world: World) -> None:
    client = await _strike(role, kind, world)
    client.leave()
    await until(lambda: not world.server.server_state.tasks)


async def _shut_down(role: str, kind: str, in_time: bool, world: World) -> Answer | None:
    client = await _strike(role, kind, world)
    await world.terminate()
    if in_time:
        world.stub(role).clear_faults()
    answer: Answer | None = await client.finish()
    return answer


async def _take_too_long(role: str, kind: str, world: World) -> Answer | None:
    world.stub(role).add_fault(kind, after=EVENTS)
    return await (await world.ask(DEADLINE)).finish()


async def _too_long_between(world: World) -> Answer | None:
    async with deaf(world.stub("generation")):
        return await (await world.ask()).finish()


async def _leave_between(world: World) -> None:
    async with deaf(world.stub("generation")) as asked:
        client = await world.ask()
        await asked()
        client.leave()
        await until(lambda: not world.server.server_state.tasks)


async def _shut_down_between(world: World) -> Answer | None:
    async with deaf(world.stub("generation")) as asked:
        client = await world.ask()
        await asked()
        await world.terminate()
        return await client.finish()
