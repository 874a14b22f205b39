"""What holds for all policies: who is never chosen, how bursts spread, and that nothing a client sends matters."""

import random
from typing import Any

import pytest

from kernel import find_extension
from plugins.dispatch.extensions import load_policy
from plugins.dispatch.policies.consistent_hash import ConsistentHash
from plugins.dispatch.policies.conversation import StickyConversation
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.prefix import Prefix
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Role
from plugins.slots import Conversation, Payload
from tests.dispatch.policies.support import POLICIES, Held, among, chat, completion, roster_of, send, worker_of

every_policy = pytest.mark.parametrize("kind", POLICIES, ids=lambda kind: kind.__name__)

NAMES = (
    "round_robin",
    "random",
    "least_loaded",
    "load_balancing",
    "power_of_two",
    "conversation",
    "consistent_hash",
    "prefix",
    "kv_events",
)

LONG = "word " * 1000


def requests(number: int) -> list[Facts]:
    """One request of each kind."""
    return [
        chat(f"{number} " + LONG),
        chat("hello", conversation=f"c{number}"),
        chat("hello", user=f"u{number}"),
        completion(list(range(number, number + 300))),
        completion("same for all"),
    ]


@pytest.mark.parametrize(("name", "kind"), list(zip(NAMES, POLICIES, strict=True)))
def test_every_policy_is_found_by_its_name(name: str, kind: type[Any]) -> None:
    """Through the door that third parties use."""
    assert load_policy(name) is kind
    assert find_extension("kernel.policies", name).load() is kind


@every_policy
def test_who_is_left_out_is_not_chosen(kind: type[Any]) -> None:
    """Neither at first, nor when the choice had fallen on it before."""
    policy = kind()
    roster = roster_of(4, policy=policy)
    for number in range(20):
        for facts in requests(number):
            first = send(policy, roster, facts).worker
            assert send(policy, roster, facts, but=[first]).worker is not first


@every_policy
def test_a_worker_at_the_other_legs_address_is_avoided(kind: type[Any]) -> None:
    """As long as there is another one."""
    policy = kind()
    roster = roster_of(3, policy=policy)
    avoided = [roster.at(0).url, roster.at(2).url]
    for number in range(10):
        for facts in requests(number):
            assert policy.choose(among(roster, avoid=avoided), facts).index == 1
            assert policy.choose(among(roster, [roster.at(1), roster.at(2)], avoided), facts).index == 0


@every_policy
def test_who_is_down_or_drains_or_is_gone_is_not_chosen(kind: type[Any]) -> None:
    """Whatever the policy remembers of it."""
    policy = kind()
    roster = roster_of(5, policy=policy)
    for number in range(10):
        for facts in requests(number):
            send(policy, roster, facts)
    roster.at(0).up = False
    roster.refresh(roster.at(0))
    roster.drain(roster.at(1))
    roster.remove(roster.at(2))
    for number in range(10):
        for facts in requests(number):
            assert send(policy, roster, facts).worker.index in (3, 4)


@every_policy
def test_a_worker_on_the_place_of_another_one_inherits_nothing(kind: type[Any]) -> None:
    """What was known of the old one is not believed of the new one."""
    policy = kind()
    roster = roster_of(2, policy=policy)
    for _ in range(3):
        for facts in requests(1):
            send(policy, roster, facts)
    roster.remove(roster.at(0))
    roster.add(worker_of(7))
    for facts in requests(1):
        held = send(policy, roster, facts)
        assert facts.match is None or held.worker.index == 1 or facts.match.cached == 0


@every_policy
def test_a_burst_of_different_requests_spreads(kind: type[Any]) -> None:
    """Load is counted when a worker is chosen, so that none has to have answered for the others to have a share."""
    policy = kind()
    roster = roster_of(10, policy=policy)
    for number in range(400):
        send(policy, roster, chat(f"{number} " + "x" * 2000))
    assert all(15 <= worker.load <= 75 for worker in roster.members), [worker.load for worker in roster.members]


@pytest.mark.parametrize("kind", [StickyConversation, ConsistentHash, Prefix, KvEvents])
def test_conversations_are_spread_by_weight(kind: type[Any]) -> None:
    """A worker of four times the weight gets about four times the new conversations."""
    policy = kind()
    roster = roster_of(4, policy=policy, weights=(1, 1, 4, 2))
    for number in range(800):
        send(policy, roster, chat(f"{number} " + "x" * 2000, conversation=f"c{number}"))
    for worker in roster.members:
        assert 0.7 * 100 * worker.weight <= worker.load <= 1.3 * 100 * worker.weight


@every_policy
def test_membership_may_change_while_requests_run(kind: type[Any]) -> None:
    """Choices stay among those that are there, and all load is given back."""
    chance, policy = random.Random(11), kind()
    roster = roster_of(6, policy=policy, weights=(1, 1, 2, 1, 0.5, 1), slow_start=5)
    held: list[Held] = []
    number, workers = 6, set(roster.known())
    for _ in range(1500):
        match chance.randrange(10):
            case 0 if len(roster.members) > 2:
                worker = chance.choice(roster.members)
                worker.up = False
                roster.refresh(worker)
            case 1:
                worker = chance.choice(roster.known())
                worker.up = True
                roster.refresh(worker)
            case 2 if len(roster.members) > 3:
                roster.remove(chance.choice(roster.members))
            case 3 if len(roster.known()) < 9:
                roster.add(worker_of(number))
                workers.add(roster.known()[-1])
                number += 1
            case 4 | 5 | 6 if held:
                held.pop(chance.randrange(len(held))).finish(success=chance.random() < 0.8)
            case _ if roster.members:
                held.append(send(policy, roster, chance.choice(requests(chance.randrange(5)))))
        workers |= set(roster.known())
    for request in held:
        request.finish()
    assert all(worker.load == worker.work == 0 for worker in workers)


HOSTILE: list[Any] = [
    {},
    {"messages": None},
    {"messages": "hello"},
    {"messages": []},
    {"messages": [None, 1, "x", [], {}, {"role": None, "content": None}]},
    {"messages": [{"role": 1, "content": [{"type": "text", "text": 3}, {"text": None}, 7]}]},
    {"messages": [{"role": "user", "content": {"a": {"b": ["c"]}}}]},
    {"messages": [{"content": "\ud800 lone", "role": "\udfff"}]},
    {"messages": [{"role": "user", "content": "\U0001f600" * 5000}] * 50},
    {"messages": [{"role": "user", "content": "x" * 1_000_000}] * 3},
    {"messages": [{"role": "user", "content": ""}] * 100_000},
    {"messages": [{"role": "user", "content": [[[["x"]]]] * 50_000}]},
    {"prompt": None},
    {"prompt": []},
    {"prompt": [[]]},
    {"prompt": [[1, 2], [3]]},
    {"prompt": [1, "x", None, {}]},
    {"prompt": [1, {}] * 100},
    {"prompt": [True] * 100},
    {"prompt": [-1, 2**63, 2**200] * 50},
    {"prompt": list(range(100_000))},
    {"prompt": "y" * 3_000_000},
    {"prompt_token_ids": "no", "messages": [{"role": "user", "content": "x"}]},
    {"prompt_token_ids": [1.5] * 100, "messages": [{"role": "user", "content": "x"}]},
    {"prompt": [1] * 100, "cache_salt": ["no salt"]},
    {"prompt": [1] * 100, "cache_salt": "\ud800"},
    {"user": "u" * 1_000_000},
    {"user": ["no"], "metadata": {"user_id": 3}},
    {"system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "x"}]},
    {"instructions": {"a": 1}, "input": [{"type": "message", "role": "user", "content": "x"}]},
    {"input": "hello"},
]


@every_policy
@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_no_body_is_too_much(kind: type[Any], data: dict[str, Any]) -> None:
    """Requests of any shape get a worker; their fate is the worker's to decide."""
    policy = kind()
    roster = roster_of(3, policy=policy)
    for identity in (None, "c", "\U0001f600" * 1024, "\ud800", ""):
        known = None if identity is None else Conversation(identity, "x")
        for _ in range(2):
            held = send(policy, roster, Facts(Role.GENERATION, Payload(b"", data), known))
            assert held.work >= 1
            held.finish()


def test_a_body_without_end_takes_no_time_without_end() -> None:
    """A hundred thousand messages are not all looked at."""
    facts = Facts(Role.GENERATION, Payload(b"", {"messages": [{"role": "user", "content": "a"}] * 100_000}))
    assert len(facts.prompt.pieces) < 10_000


@every_policy
def test_policies_of_the_same_configuration_are_equal(kind: type[Any]) -> None:
    """What one of them did is no part of it: a reload keeps its pool."""
    used = kind()
    roster = roster_of(2, policy=used)
    send(used, roster)
    assert used == kind()
    assert [other for other in POLICIES if other() == used] == [kind]
