"""Measures what choosing a worker costs: `python -m bench.policies`, microseconds for each choice.

A choice is all that dispatch has done for it: the policy's preparation, who may be chosen, the choice, counting the
load, and giving an older load back. Every worker has four requests, and the next one is one of 256 prompts in turn,
which were sent before. `prefix` and `kv_events` are measured at their most expensive: all workers have the first half
of each prompt, and one worker has the rest of it.
"""

import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any, Final

import click
import orjson
from attrs import frozen

from plugins.dispatch.candidates import select
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
from plugins.dispatch.worker import Role, Worker
from plugins.slots import Conversation, Payload

WORKERS: Final = (10, 100, 1_000)
LOAD: Final = 4
PROMPTS: Final = 256
BLOCK: Final = 32


@frozen(eq=False)
class Case:
    """A policy and the requests that it is measured with."""

    name: str
    make: Callable[[], Any]
    prompts: Callable[[int], Facts]
    weights: Sequence[float] = (1.0,)
    but: int = 0


def chat(number: int, *, named: bool = False, characters: int = 500) -> Facts:
    """A chat of four messages."""
    text = f"{number} " + "lorem ipsum " * (characters // 12)
    roles = ("system", "user", "assistant", "user")
    data = {"model": "m", "messages": [{"role": role, "content": text} for role in roles]}
    conversation = Conversation(f"conversation-{number}", "x-session-id") if named else None
    return Facts(Role.GENERATION, Payload(orjson.dumps(data), data), conversation)


def tokens(number: int, *, length: int = 2048) -> Facts:
    """A completion of token ids, whose first half all have."""
    half = length // 2
    ids = [*range(half), *random.Random(number).choices(range(50_000), k=half)]
    return Facts(Role.CONTEXT, Payload(b"", {"model": "m", "prompt": ids}))


def named(number: int) -> Facts:
    """A chat that says which conversation it is."""
    return chat(number, named=True)


def warm(policy: KvEvents, roster: Roster, prompts: Sequence[Facts]) -> None:
    """Have every worker hold the common half, and one worker the rest of each prompt."""
    for worker in roster.members:
        policy.holding(worker).resize(BLOCK)
    for number, facts in enumerate(prompts):
        policy.prepare(facts)
        blocks = facts.notes.blocks[BLOCK]
        for worker in roster.members if number == 0 else ():
            for block in blocks[: len(blocks) // 2]:
                policy.holding(worker).store(block, block)
        owner = roster.members[number % len(roster.members)]
        for block in blocks:
            policy.holding(owner).store(block, block)


def build(case: Case, policy: Policy, count: int) -> Roster:
    """A roster of workers that are up."""
    roster = Roster(unit=policy.unit if isinstance(policy, Weighs) else 1)
    for index in range(count):
        url = f"http://10.0.{index // 250}.{index % 250}:8000"
        roster.add(Worker(url, index, up=True, weight=case.weights[index % len(case.weights)]))
    return roster


def run(case: Case, count: int, choices: int) -> float:
    """Microseconds for one choice among so many workers."""
    policy: Policy = case.make()
    weighs = policy if isinstance(policy, Weighs) else None
    prepare = getattr(policy, "prepare", None)
    roster = build(case, policy, count)
    prompts = [case.prompts(number) for number in range(PROMPTS)]
    if isinstance(policy, KvEvents):
        warm(policy, roster, prompts)
    held: deque[tuple[Worker, int]] = deque()
    but = tuple(roster.members[: case.but])

    def choose(turn: int) -> None:
        known = prompts[turn % PROMPTS]
        facts = Facts(known.role, known.payload, known.conversation)
        if prepare is not None:
            prepare(facts)
        candidates = select(roster, but)
        if candidates is None:
            raise RuntimeError("no worker is up")
        worker = policy.choose(candidates, facts)
        work = 1 if weighs is None else weighs.weigh(worker, facts)
        roster.charge(worker, work)
        held.append((worker, work))
        if len(held) > LOAD * count:
            roster.discharge(*held.popleft())

    for turn in range(LOAD * count + PROMPTS):
        choose(turn)
    began = process_time()
    for turn in range(choices):
        choose(turn)
    return (process_time() - began) / choices * 1e6


CASES: Final = (
    Case("round_robin", RoundRobin, chat),
    Case("round_robin, weights", RoundRobin, chat, weights=(1, 2, 4)),
    Case("random", Random, chat),
    Case("random, weights", Random, chat, weights=(1, 2, 4)),
    Case("least_loaded", LeastLoaded, chat),
    Case("least_loaded, one tried", LeastLoaded, chat, but=1),
    Case("least_loaded, weights", LeastLoaded, chat, weights=(1, 2, 4)),
    Case("least_loaded, tokens", lambda: LeastLoaded("tokens"), chat),
    Case("load_balancing", LoadBalancing, chat),
    Case("power_of_two", PowerOfTwo, chat),
    Case("conversation, named", StickyConversation, named),
    Case("conversation, by prefix", StickyConversation, chat),
    Case("consistent_hash, named", ConsistentHash, named),
    Case("consistent_hash, by prompt", ConsistentHash, chat),
    Case("prefix, 2 KB of text", Prefix, chat),
    Case("prefix, 2,048 tokens", Prefix, tokens),
    Case("kv_events zmq, 2,048 tokens", lambda: KvEvents(max_sessions=0), tokens),
    Case("kv_events polled, 2,048 tokens", lambda: KvEvents("polled", max_sessions=0), tokens),
    Case("kv_events zmq, pinned", KvEvents, tokens),
)


@click.command(help=__doc__.partition("\n")[0])
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Of which the median is shown.")
@click.option("--quick", is_flag=True, help="Tiny counts: does it run? The figures mean nothing.")
def main(rounds: int, quick: bool) -> None:  # noqa: FBT001
    """Print the table."""
    print(f"python {sys.version.split()[0]}, microseconds of processor time for each choice")
    print(f"{'workers':32}" + "".join(f"{count:>9,}" for count in WORKERS))
    for case in CASES:
        figures = [
            median(run(case, count, 50 if quick else 2_000) for _ in range(1 if quick else rounds)) for count in WORKERS
        ]
        print(f"{case.name:32}" + "".join(f"{figure:9.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.policies")
