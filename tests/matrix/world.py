"""One cell's world: stub workers, a kernel that serves them over real sockets, and what can be seen of both."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

from attrs import define, field

from kernel import Runtime, build_app
from plugins import STANDARD, parse_document
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker import Worker
from plugins.host.listener import bind
from plugins.host.routes import build_routes
from plugins.host.server import Hooks, KernelServer, build_config
from plugins.metrics import REGISTRY
from tests.matrix.client import Asked, Client
from tests.matrix.setups import MODEL, Limits, Setup, configuration

SETTLE_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.002

Metrics = dict[str, float]


@define(eq=False)
class World:
    """Stubs by role, in the order of the configuration, and the kernel in front of them.

    `resting` are the tasks that were there before the first request; `worried` is what the event loop complained of.
    """

    setup: Setup
    asked: Asked
    stubs: dict[str, list[Stub]]
    server: KernelServer
    port: int
    workers: dict[str, list[Worker]]
    stopping: asyncio.Event
    close: Callable[[], Awaitable[None]]
    before: Metrics = field(init=False)
    resting: set["asyncio.Task[Any]"] = field(init=False)
    worried: list[str] = field(factory=list)
    _seen: dict[Stub, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.resting = asyncio.all_tasks()
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        self.before = read_metrics()
        self._seen = {stub: stub.state().requests for stub in self.everyone}

    def received(self, stub: Stub) -> int:
        """How many requests for work a stub was sent."""
        return stub.state().requests - self._seen[stub]

    @property
    def endpoint(self) -> str:
        """The name of the endpoint that is asked, as metrics have it."""
        return {"chat": "chat_completions"}.get(self.asked[0], self.asked[0])

    @property
    def everyone(self) -> list[Stub]:
        """All stubs."""
        return [stub for stubs in self.stubs.values() for stub in stubs]

    def stub(self, role: str) -> Stub:
        """The worker of a role that a request goes to first."""
        return self.stubs.get(role, self.everyone)[0]

    async def ask(self, *headers: str) -> Client:
        """Send the cell's request."""
        return await Client.ask(self.port, self.asked, *headers)

    def changes(self) -> Metrics:
        """What was added to every metric that changed."""
        now = read_metrics()
        return {name: now[name] - self.before.get(name, 0.0) for name in now if now[name] != self.before.get(name, 0.0)}

    async def terminate(self) -> None:
        """Send this process the signal by which an operator stops a kernel; return when it has begun to stop."""
        signal.raise_signal(signal.SIGTERM)
        await self.stopping.wait()

    def left(self) -> list["asyncio.Task[Any]"]:
        """The tasks that came since the start, but for those of connections that stubs keep open."""
        mine = asyncio.all_tasks() - self.resting - {asyncio.current_task()}
        return [task for task in mine if "RequestHandler.start" not in repr(task.get_coro())]

    def is_quiet(self) -> bool:
        """Whether nothing is being done for any request, by the kernel or by a stub."""
        states = [stub.state() for stub in self.everyone]
        return not any(
            (self.server.server_state.tasks, self.left(), *(state.running or state.pairs for state in states))
        )

    async def settle(self) -> None:
        """Return when all is quiet; what is not, is told."""
        try:
            await until(self.is_quiet)
        except TimeoutError:
            self.worried += [f"left running: {task.get_coro()!r:.160}" for task in self.left()]
            for stub in self.everyone:
                state = stub.state()
                if state.running or state.pairs:
                    self.worried.append(f"{stub.settings.role}: {state.running} running, {state.pairs} waiting")


async def until(holds: Callable[[], object], seconds: float = SETTLE_SECONDS) -> None:
    """Wait for a state that nothing tells of; `TimeoutError` if it does not come about."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(POLL_SECONDS)


def read_metrics() -> Metrics:
    """Every sample as `/metrics` names it, but for times, their sums and buckets, and the process' own."""
    return {
        _named(sample.name, sample.labels): sample.value
        for metric in REGISTRY.collect()
        if not metric.name.startswith(("process_", "python_"))
        for sample in metric.samples
        if not sample.name.endswith(("_created", "_sum", "_bucket"))
    }


def _named(name: str, labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs else name


@asynccontextmanager
async def world(
    setup: Setup, transport: str, asked: Asked, limits: Limits, *, signals: bool = False, each: int = 1
) -> AsyncIterator[World]:
    """Run `each` workers of every role, and a kernel; with `signals` it takes those of this process."""
    async with AsyncExitStack() as stack:
        stubs = {
            role: [await stack.enter_async_context(_stub(setup, role)) for _ in range(each)] for role in setup.roles
        }
        text = configuration(setup, transport, limits, stubs)
        runtime = Runtime(STANDARD, lambda: parse_document(text, "matrix"))
        listener, stopping = bind("127.0.0.1", 0), asyncio.Event()
        config = build_config(build_app(runtime, build_routes(STANDARD.endpoints)), 5.0)
        server = KernelServer(config, runtime, limits.grace, Hooks(stop=stopping.set))
        close = await (_serve if signals else start)(server, listener)
        stack.push_async_callback(close)
        made = World(setup, asked, stubs, server, listener.getsockname()[1], _workers(runtime, setup), stopping, close)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: made.worried.append(f"event loop: {context['message']}"))
        stack.callback(loop.set_exception_handler, None)
        yield made


async def start(server: KernelServer, listener: socket.socket) -> Callable[[], Awaitable[None]]:
    """Start a server without its loop, whose ticks only look for signals; gives what stops it, once."""
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([listener])

    async def close() -> None:
        if not server.should_exit:
            server.should_exit = True
            await server.shutdown([listener])

    return close


async def _serve(server: KernelServer, listener: socket.socket) -> Callable[[], Awaitable[None]]:
    """Serve until a signal comes; gives what waits for the end."""
    serving = asyncio.get_running_loop().create_task(server.serve([listener]))
    await until(lambda: server.started)

    async def close() -> None:
        server.should_exit = True
        await serving

    return close


def _workers(runtime: Runtime, setup: Setup) -> dict[str, list[Worker]]:
    """What the kernel knows of the stubs of each role."""
    dispatch = runtime.serving.plugins["dispatch"]
    assert isinstance(dispatch, Dispatch)
    pools = [pool for pool, _ in dispatch._state.uses]
    return {role: list(pool.workers) for role, pool in zip(setup.roles, pools, strict=True)}


def _stub(setup: Setup, role: str) -> AbstractAsyncContextManager[Stub]:
    return run_stub(setup.stub, role=role, model=MODEL, failure_seconds=0.0, **setup.fields)
