"""What steps of the request path cost inside one process, without sockets: the chain, each plugin, each chunk."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from time import process_time
from typing import Any, Final, TypeAlias

import orjson
from starlette.applications import Starlette

from bench.cases import ROUND_ROBIN
from bench.gateways import Pools, configuration
from bench.steps import (
    SCOPE,
    Answerer,
    Chunks,
    PassThrough,
    Serving,
    answer,
    filled_exchange,
    new_exchange,
    receive,
    send,
)
from kernel import Assembly, KernelMiddleware, StreamReply, build
from kernel.chain import compose
from kernel.wire import write_stream
from plugins import STANDARD, parse_document
from plugins.host.logs import configure_logs
from plugins.host.memory import settle
from plugins.slots import TIMING, Timing

BREATH: Final = 64
"""Requests between two turns of the event loop, which alone gets rid of timers that were cancelled."""

MANY: Final = 20
"""Plugins that pass through, one being too cheap to be measured."""

Step: TypeAlias = Callable[[], Awaitable[object]]
Named: TypeAlias = tuple[str, Any, bool]
"""A plugin with its name, and whether it is fail-open."""


async def measure_chain(rounds: int, count: int) -> dict[str, dict[str, float]]:
    """The costs of each section in microseconds of processor time, by the name of the step."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: ASYNC230, PTH123
        configure_logs("info", "json")
        document = orjson.dumps(configuration(ROUND_ROBIN, Pools.of(ROUND_ROBIN, 1), 1)).decode()
        assembly = build(STANDARD, parse_document(document, "bench"))
        plugins: list[Named] = [
            (place.name, assembly.plugins[place.name], place.spec.fail_open)
            for place in assembly.places
            if place.spec is not None and place.name != "dispatch"
        ]
        settle()
        return {
            "a request, without uvicorn and dispatch": await _requests(assembly, rounds, count),
            "what each plugin adds, on its own": await _plugins(plugins, rounds, count),
            "a chunk of a stream": await _chunks(plugins, rounds, count),
        }


async def costs(steps: Mapping[str, Step], rounds: int, count: int) -> dict[str, list[float]]:
    """Microseconds for one call of each step in each round, of `count` calls; steps take turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            began = process_time()
            for number in range(count):
                await step()
                if not number % BREATH:
                    await asyncio.sleep(0)
            if turn:  # the first one warms up
                taken[name].append((process_time() - began) / count * 1e6)
    return taken


def through(*plugins: Named) -> Step:
    """A step that sends an exchange through a chain with these plugins, and releases it."""
    chain = compose([*plugins, ("dispatch", Answerer(answer), False)])

    async def step() -> None:
        exchange = filled_exchange()
        await chain(exchange)
        await exchange.release()

    return step


async def _requests(assembly: Assembly, rounds: int, count: int) -> dict[str, float]:
    standing = Assembly(assembly.places, {**assembly.plugins, "dispatch": Answerer(answer)}, {}, STANDARD.telemetry)
    app = KernelMiddleware(Starlette(), runtime=Serving(standing))

    async def make() -> None:
        new_exchange()

    async def make_and_release() -> None:
        await new_exchange().release()

    async def run_chain() -> None:
        exchange = new_exchange()
        chain = standing.enter(exchange)
        await chain(exchange)
        await exchange.release()

    async def run_middleware() -> None:
        await app(SCOPE, receive, send)

    steps = {
        "an exchange, made": make,
        "an exchange, made and released": make_and_release,
        "the standard chain, with its exchange": run_chain,
        "the middleware, with all that and the answer written": run_middleware,
    }
    taken = await costs(steps, rounds, count)
    passed = await costs({"none": through(), "many": through(*[("none", PassThrough(), False)] * MANY)}, rounds, count)
    return {
        "a plugin that passes through": _difference(passed["many"], passed["none"]) / MANY,
        **{name: median(own) for name, own in taken.items()},
    }


async def _plugins(plugins: list[Named], rounds: int, count: int) -> dict[str, float]:
    """What a chain with one plugin costs, less what it costs without any."""
    taken = await costs({"": through(), **{plugin[0]: through(plugin) for plugin in plugins}}, rounds, count)
    bare = taken.pop("")
    return {name: _difference(own, bare) for name, own in taken.items()}


async def _chunks(plugins: list[Named], rounds: int, count: int) -> dict[str, float]:
    """What a chunk costs without plugins and with all, and what each one adds that looks at chunks."""
    chains = {"": [], **{plugin[0]: [plugin] for plugin in plugins}, "all": plugins}
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, chain in chains.items():
            if (microseconds := await _pump(chain, count)) is not None:
                taken.setdefault(name, []).append(microseconds)
    bare, whole = taken.pop(""), taken.pop("all")
    added = {f"what {name} adds": _difference(own, bare) for name, own in taken.items()}
    return {"the pump alone": median(bare), **added, "the pump with the whole chain": median(whole)}


async def _pump(plugins: list[Named], count: int) -> float | None:
    """Microseconds for a chunk of a long stream; None if these plugins do nothing with chunks."""
    exchange = filled_exchange()
    exchange[TIMING] = Timing(exchange.arrived)
    source = Answerer(lambda: StreamReply(Chunks(count)))
    reply = await compose([*plugins, ("dispatch", source, False)])(exchange)
    assert isinstance(reply, StreamReply)
    idle = plugins and all(link.step is None for link in reply.links)
    began = process_time()
    if not idle:
        await write_stream(reply, send, [], exchange)
    taken = (process_time() - began) / count * 1e6
    await exchange.release()
    return None if idle else taken


def _difference(own: list[float], bare: list[float]) -> float:
    """The median of what is more in the same round."""
    return median(mine - less for mine, less in zip(own, bare, strict=True))
