"""The contract of a policy, which chooses the worker of a leg, and of what it may do besides."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attrs import define, field, frozen

from plugins.board import Record
from plugins.dispatch.candidates import Candidates
from plugins.dispatch.client import Client
from plugins.dispatch.prompt import Prompt
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Role, Worker
from plugins.slots import Conversation, Payload


@frozen
class Match:
    """How much of a prompt a policy believes to be cached on the chosen worker, in tokens; of text, estimated."""

    cached: int
    prompt: int


@define(eq=False)
class Facts:
    """What a policy may know of the leg that it chooses for; one object for all attempts of the leg.

    `match` is for whoever wants to know how good the choice was, None if nobody can; `notes` are the policy's own.
    """

    role: Role
    payload: Payload
    conversation: Conversation | None = None
    match: Match | None = field(default=None, init=False)
    notes: Any = field(default=None, init=False)
    _prompt: Prompt | None = field(default=None, init=False)

    @property
    def prompt(self) -> Prompt:
        """What can be known of the prompt; made when it is first asked for."""
        if self._prompt is None:
            self._prompt = Prompt(self.payload.data)
        return self._prompt


class Policy(Protocol):
    """An attrs class whose `init` fields are its configuration; each pool has an instance of its own.

    A policy may also have the methods of the protocols below. None of them is asked for a fault of its own: what
    they raise fails the request, or the start of the pool.
    """

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """One of `candidates`, which are never empty and in the order of the configuration.

        Called on every attempt and does no I/O. The load of the chosen worker is counted before the next call.
        """
        ...


@runtime_checkable
class Weighs(Protocol):
    """A policy whose requests do not all weigh the same; `unit` is what one usually weighs."""

    @property
    def unit(self) -> int:
        """What a request usually weighs, at least 1."""
        ...

    def weigh(self, worker: Worker, facts: Facts, /) -> int:
        """What the request weighs on the worker that was chosen for it, at least 1, until it is given back."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A policy that has work to do for a request which must not hold up others."""

    def prepare(self, facts: Facts, /) -> Awaitable[None] | None:
        """Called once for each leg before the first choice; what it returns is awaited."""
        ...


@runtime_checkable
class HearsEndings(Protocol):
    """A policy that hears how its choices ended."""

    def finished(self, worker: Worker, facts: Facts, /, *, success: bool) -> None:
        """Called once for each choice, after its load was given back."""
        ...


@runtime_checkable
class HearsTurns(Protocol):
    """A policy that hears which workers take requests."""

    def turned(self, worker: Worker, /) -> None:
        """Called when a worker begins to take requests, or no longer does; `roster.takes` says which."""
        ...


@runtime_checkable
class HearsLeaving(Protocol):
    """A policy that hears which workers are gone for good."""

    def left(self, worker: Worker, /) -> None:
        """Called when a worker is gone. Its index may be given to another one, and what it still has ends later."""
        ...


class Choices(Protocol):
    """The same pool in the other processes on this port."""

    def tell(self, worker: Worker, kind: int, numbers: Sequence[int], /) -> int:
        """Tell what a worker was chosen for, and return when that was, in nanoseconds that all processes count.

        `kind`, from 0 to 255, and `numbers`, which have 64 bits and a sign, are the policy's own. Hashes of strings are
        the same in all of the processes.
        """
        ...

    def hear(self) -> None:
        """Have `heard` called with what was told until now, which else happens within some hundredths of a second."""
        ...


@runtime_checkable
class TellsChoices(Protocol):
    """A policy that remembers what it chose, and should know what other processes on the same port did."""

    def join(self, choices: Choices, /) -> None:
        """Called before the first choice, in one of several processes alone."""
        ...

    def heard(self, worker: Worker, record: Record, /) -> None:
        """Called with what another process told of a worker, whether or not that takes requests here."""
        ...


@frozen(eq=False)
class Site:
    """Where a policy works: a pool of one model and role, and how its workers are reached."""

    model: str
    role: Role
    roster: Roster
    client: Client
    headers: Mapping[str, str]


@runtime_checkable
class HasSources(Protocol):
    """A policy that learns from elsewhere, for as long as its pool runs."""

    def start(self, site: Site, /) -> None:
        """Called in the event loop, before any worker is known to be up."""
        ...

    async def stop(self) -> None:
        """Called when the pool ends, before its connections close."""
        ...
