"""A stub worker: a real HTTP server that speaks an engine's protocol and fails on command."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Unpack

from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.control import PREFIX, answer_control
from plugins.dispatch.embedded.stub.engines import ENGINES
from plugins.dispatch.embedded.stub.engines.base import Engine, Place
from plugins.dispatch.embedded.stub.faults import FaultBook, FaultFields, FaultRule
from plugins.dispatch.embedded.stub.ledger import ABORTED, FAULTED, FINISHED, Ledger, StubState
from plugins.dispatch.embedded.stub.listener import Connections, Listener
from plugins.dispatch.embedded.stub.service import Service
from plugins.dispatch.embedded.stub.settings import SettingsFields, StubSettings
from plugins.dispatch.embedded.stub.side import SideDoor


@define(eq=False)
class Stub:
    """One worker. All but `start`, `stop`, `restart` and `until` act at once and need no `await`.

    `exit` is what the fault of that name calls; without one it is `kill`.
    """

    settings: StubSettings
    exit: Callable[[], None] | None = None
    engine: Engine = field(init=False)
    _ledger: Ledger = field(factory=Ledger, init=False)
    _book: FaultBook = field(factory=FaultBook, init=False)
    _listener: Listener = field(init=False)
    _side: SideDoor | None = field(default=None, init=False)
    _service: Service = field(init=False)
    _alive: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if self.settings.engine not in ENGINES:
            raise ValueError(f"engine: expected one of {', '.join(ENGINES)}, got {self.settings.engine!r}")

    @property
    def url(self) -> str:
        """The worker's address, without a path."""
        return self._listener.url

    @property
    def port(self) -> int:
        """The worker's port, which a restart keeps."""
        return self._listener.port

    @property
    def side_port(self) -> int | None:
        """The port on which other workers ask for what this one holds, if it has one; a restart keeps it."""
        return self._side.port if self._side else None

    @property
    def faults(self) -> tuple[FaultRule, ...]:
        """The faults that no request has met yet."""
        return self._book.rules

    async def start(self) -> None:
        """Take the port and serve."""
        self._service = Service(
            self._ledger,
            self._book,
            self.settings.allow_fault_header,
            self.exit or self.kill,
            self._refuse,
            lambda: not self._listener.listens,
        )
        connections = Connections(self._answer, self.settings.keep_alive, self._ledger.notify)
        self._listener = Listener(self.settings.host, self.settings.port, connections)
        self._listener.reserve()
        if ENGINES[self.settings.engine].has_side_door(self.settings):
            self._side = self._reserve_side()
        await self._start_engine()

    async def stop(self) -> None:
        """Break what is open and give the port back."""
        self.kill()
        await self._listener.release()
        if self._side is not None:
            await self._side.release()
        await self.engine.stop()

    def kill(self) -> None:
        """End as a killed process does: no listener, no connections, nothing held, no faults left."""
        self._alive = False
        self._listener.close()
        for call in self._service.calls:
            call.cut = True
        self._listener.abort_all()
        if self._side is not None:
            self._side.kill()
        self._book.clear()
        self.engine.die()

    async def restart(self) -> None:
        """Serve again on the same port, as a new process does; the counts of requests go on."""
        self.kill()
        await self.engine.stop()
        await self._start_engine()

    def state(self) -> StubState:
        """Give the counts of this moment."""
        outcomes = self._ledger.outcomes
        return StubState(
            requests=self._ledger.running + outcomes.total(),
            running=self._ledger.running,
            finished=outcomes[FINISHED],
            aborted=outcomes[ABORTED],
            faulted=outcomes[FAULTED],
            held_blocks=self.engine.handoffs.held_blocks,
            leaked_blocks=self.engine.handoffs.leaked_blocks,
            handoffs=self.engine.handoffs.counts(),
            violations=dict(self._ledger.violations),
            violation_notes=tuple(self._ledger.notes),
            aborts=self._ledger.aborts,
            pairs=self.engine.waiting,
            side_port=self.side_port,
            connections_open=len(self._listener.connections.clients),
            probes=dict(self._ledger.probes),
            last_requests=tuple(self._ledger.last),
        )

    async def until(self, holds: Callable[[StubState], bool], seconds: float = 10.0) -> StubState:
        """Wait until the state is as wanted and give it; `TimeoutError` if it does not become so."""
        async with asyncio.timeout(seconds):
            await self._ledger.until(lambda: holds(self.state()))
        return self.state()

    def add_fault(self, kind: str, **fields: Unpack[FaultFields]) -> FaultRule:
        """Make the worker fail; see `FaultRule` for the fields."""
        rule = FaultRule(kind=kind, **fields)
        self.add_rule(rule)
        return rule

    def add_rule(self, rule: FaultRule) -> None:
        """Take a rule; a refusal of connections begins at once, all others wait for a request."""
        if rule.kind == "refuse":
            self._refuse(rule.seconds)
        else:
            self._book.add(rule)

    def clear_faults(self) -> None:
        """Drop all faults, let hanging requests go on, and accept connections again unless killed."""
        self._book.clear()
        if self._alive:
            self._listener.reopen()

    def reset(self) -> None:
        """Drop all faults, counts and held blocks; requests that run go on."""
        self.clear_faults()
        self.engine.handoffs.forget()
        self._ledger.reset()

    async def _start_engine(self) -> None:
        place = Place(self.url, self.settings.host, self.port, self.side_port)
        self.engine = ENGINES[self.settings.engine](self.settings, place, self._ledger)
        await self.engine.start()
        self._alive = True
        if self._side is not None:
            await self._side.open()
        await self._listener.open()

    def _reserve_side(self) -> SideDoor:
        door = SideDoor(self.settings.host, self.settings.side_port, self._answer_side)
        try:
            door.reserve()
        except OSError:
            self._listener.abandon()
            raise
        return door

    async def _answer_side(self, request: web.BaseRequest, path: str) -> web.Response:
        return await self.engine.side(request, path)  # not bound before: a restart makes a new engine

    def _refuse(self, seconds: float) -> None:
        if self._alive:
            self._listener.refuse(seconds, {call.request.protocol for call in self._service.calls})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(PREFIX):
            self._listener.connections.mark_control(request.protocol)
            return await answer_control(self, request)
        return await self._service.answer(self.engine, request)


@asynccontextmanager
async def run_stub(engine: str, **fields: Unpack[SettingsFields]) -> AsyncGenerator[Stub, None]:
    """Serve a stub worker in this process for the length of a block."""
    stub = Stub(StubSettings(engine=engine, **fields))
    await stub.start()
    try:
        yield stub
    finally:
        await stub.stop()
