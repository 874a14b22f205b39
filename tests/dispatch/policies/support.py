"""Driving a policy alone: a roster of workers, requests of every kind, and a clock that is told the time."""

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from plugins.dispatch.candidates import Candidates, select
from plugins.dispatch.policies.at_random import Random
from plugins.dispatch.policies.consistent_hash import ConsistentHash
from plugins.dispatch.policies.conversation import StickyConversation
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.load_balancing import LoadBalancing
from plugins.dispatch.policies.power_of_two import PowerOfTwo
from plugins.dispatch.policies.prefix import Prefix
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Facts, Policy, Weighs
from plugins.dispatch.roster import Roster
from plugins.dispatch.shares import Shares
from plugins.dispatch.worker import Role, Worker
from plugins.slots import Conversation, Payload

POLICIES: list[type[Any]] = [
    RoundRobin,
    Random,
    LeastLoaded,
    LoadBalancing,
    PowerOfTwo,
    StickyConversation,
    ConsistentHash,
    Prefix,
    KvEvents,
]


@define(eq=False)
class Clock:
    """Tells the time that it was told."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def roster_of(
    count: int,
    *,
    policy: object = None,
    weights: Sequence[float] = (),
    slow_start: float = 0.0,
    clock: Clock | None = None,
) -> Roster:
    """Workers that are up and without load, and that tell the policy when they come and go."""
    roster = Roster(Shares(slow_start, clock or Clock()), policy.unit if isinstance(policy, Weighs) else 1)
    for name in ("turned", "left"):
        if hasattr(policy, name):
            setattr(roster, name, getattr(policy, name))
    for index in range(count):
        roster.add(worker_of(index, weights[index] if weights else 1.0))
    return roster


def worker_of(index: int, weight: float = 1.0) -> Worker:
    """A worker that is up."""
    return Worker(f"http://w{index}:8000", index, up=True, weight=weight)


def among(roster: Roster, but: Iterable[Worker] = (), avoid: Iterable[str] = ()) -> Candidates:
    """The candidates, of which there are some."""
    candidates = select(roster, tuple(but), avoid)
    assert candidates is not None
    return candidates


@define(eq=False)
class Held:
    """A request on a worker, until it is finished."""

    roster: Roster
    policy: Policy
    worker: Worker
    facts: Facts
    work: int
    over: bool = field(default=False)

    def finish(self, *, success: bool = True) -> None:
        """Give the load back and tell the policy, as the pool does."""
        assert not self.over
        self.over = True
        self.roster.discharge(self.worker, self.work)
        if hasattr(self.policy, "finished"):
            self.policy.finished(self.worker, self.facts, success=success)


def send(policy: Policy, roster: Roster, facts: Facts | None = None, but: Iterable[Worker] = ()) -> Held:
    """Choose a worker and count the load, as the pool does."""
    facts = facts or chat("hello")
    candidates = among(roster, but)
    worker = policy.choose(candidates, facts)
    assert worker in candidates
    work = policy.weigh(worker, facts) if isinstance(policy, Weighs) else 1
    roster.charge(worker, work)
    return Held(roster, policy, worker, facts, work)


def places(policy: Policy, roster: Roster, times: int, facts: Facts | None = None) -> list[int]:
    """The places of the workers chosen, each choice adding load."""
    return [send(policy, roster, facts).worker.index for _ in range(times)]


def chat(*contents: str, conversation: str | None = None, parent: str | None = None, **fields: Any) -> Facts:
    """A chat in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]
    known = None if conversation is None else Conversation(conversation, "x-session-id", parent)
    return Facts(Role.GENERATION, Payload(b"", {"model": "m", "messages": messages, **fields}), known)


def completion(prompt: Any, **fields: Any) -> Facts:
    """A completion of a text, or of token ids."""
    return Facts(Role.CONTEXT, Payload(b"", {"model": "m", "prompt": prompt, **fields}))
