"""What a stub worker has received and how each request ended."""

import asyncio
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import orjson
from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.wire import decode

RUNNING: Final = "running"
FINISHED: Final = "finished"
ABORTED: Final = "aborted"
FAULTED: Final = "faulted"

_ASIDES: Final = frozenset(
    (
        *("/abort_request", "/tokenize", "/kv_cache_events", "/steady_clock_offset", "/v1/messages/count_tokens"),
        *("/distserve/p2p_initialize", "/distserve/p2p_connect", "/distserve/p2p_drop_connect"),
        "/distserve/free_cache",
    )
)
"""Paths of requests that ask about the worker or tell it something, and are no work although they are posted."""


@define(eq=False)
class Received:
    """One request as it came in; `outcome` is running, finished, aborted (the client left) or faulted."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    wire: str
    raw: bytes = b""
    outcome: str = RUNNING
    status: int | None = None

    @property
    def is_work(self) -> bool:
        """Whether the request asks for work; a GET only asks about the worker."""
        return self.method != "GET" and self.path.partition("?")[0] not in _ASIDES

    @property
    def body(self) -> object:
        """The decoded body, or None when it cannot be decoded."""
        try:
            return decode(self.raw, self.wire)
        except ValueError:
            return None

    def header(self, name: str) -> str | None:
        """Give the first value of a header, whatever the case of its name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def to_json(self) -> dict[str, object]:
        """Give the record in the form that the control endpoint shows."""
        return {
            "method": self.method,
            "path": self.path,
            "headers": self.headers,
            "wire": self.wire,
            "body": self._shown_body(),
            "body_base64": b64encode(self.raw).decode(),
            "outcome": self.outcome,
            "status": self.status,
        }

    def _shown_body(self) -> object:
        try:
            return orjson.Fragment(orjson.dumps(self.body, default=str, option=orjson.OPT_NON_STR_KEYS))
        except TypeError:
            return None  # too deep, or with keys that only msgpack has


@frozen(kw_only=True)
class HandoffCounts:
    """How many handoffs wait for their generation worker, and how the others ended."""

    held: int = 0
    fetched: int = 0
    expired: int = 0
    dropped: int = 0
    released: int = 0


@frozen(kw_only=True)
class StubState:
    """A worker's counts at one moment; `requests` is the sum of the four outcomes after it.

    `violations` are the requests that a real engine would have answered wrongly in silence, or died of, by
    kind, and `violation_notes` say what the last of them were. `aborts` counts the requests that somebody
    asked the worker to stop, `pairs` those whose other half is awaited here. `side_port` is where other
    workers ask for what this one holds.
    """

    requests: int
    running: int
    finished: int
    aborted: int
    faulted: int
    held_blocks: int
    leaked_blocks: int
    handoffs: HandoffCounts
    violations: dict[str, int]
    violation_notes: tuple[str, ...]
    aborts: int
    pairs: int
    side_port: int | None
    connections_open: int
    probes: dict[str, int]
    last_requests: tuple[Received, ...]


@define(eq=False)
class Ledger:
    """Counts requests and keeps the last hundred; `changed` wakes whoever waits for a state."""

    outcomes: Counter[str] = field(factory=Counter)
    probes: Counter[str] = field(factory=Counter)
    last: deque[Received] = field(factory=lambda: deque[Received](maxlen=100))
    violations: Counter[str] = field(factory=Counter)
    notes: deque[str] = field(factory=lambda: deque[str](maxlen=20))
    aborts: int = 0
    running: int = 0
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def begin(self, received: Received) -> None:
        """Count a request that has just come in; health checks are counted but not kept."""
        if received.is_work:
            self.running += 1
        else:
            self.probes[received.path] += 1
        if received.is_work or received.path != "/health":
            self.last.append(received)
        self.notify()

    def end(self, received: Received, outcome: str, status: int | None) -> None:
        """Count how a request ended."""
        if received.is_work:
            self.running -= 1
            self.outcomes[outcome] += 1
        received.outcome = outcome
        received.status = status
        self.notify()

    def violate(self, kind: str, note: str) -> None:
        """Count a request that a real engine would have answered wrongly in silence, or died of."""
        self.violations[kind] += 1
        self.notes.append(f"{kind}: {note}")
        self.notify()

    def reset(self) -> None:
        """Forget everything but what is running."""
        self.outcomes.clear()
        self.probes.clear()
        self.last.clear()
        self.violations.clear()
        self.notes.clear()
        self.aborts = 0
        self.notify()

    def notify(self) -> None:
        """Wake whoever waits for a state."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is asked again after each change."""
        while not holds():
            await self._changed.wait()
