"""A key leads to a worker, in every process and after every change."""

from collections import Counter
from math import ceil
from typing import Any

import pytest

from plugins.dispatch.policies.circle import place_of
from plugins.dispatch.policies.consistent_hash import ConsistentHash
from plugins.dispatch.policy import Facts
from plugins.dispatch.roster import Roster
from tests.dispatch.policies.support import chat, completion, roster_of, send, worker_of


def owners(policy: ConsistentHash, roster: Roster, keys: int = 1000) -> dict[str, str]:
    """The URL that each key leads to while nobody has anything to do."""
    found = {}
    for number in range(keys):
        held = send(policy, roster, chat("hi", conversation=f"c{number}"))
        found[f"c{number}"] = held.worker.url
        held.finish()
    return found


def test_a_key_leads_to_the_same_worker_everywhere() -> None:
    """The circle does not depend on the order of the workers, nor on the process; the value is pinned."""
    first, second = roster_of(5), Roster()
    for index in (3, 1, 4, 0, 2):
        second.add(worker_of(index))
    assert owners(ConsistentHash(), first) == owners(ConsistentHash(), second)
    assert place_of(b"c1") == pytest.approx(0.26538089742773)


def test_a_worker_that_comes_back_has_its_keys_again() -> None:
    """While it was down, only they had moved."""
    policy = ConsistentHash()
    roster = roster_of(5, policy=policy)
    before = owners(policy, roster)
    worker = roster.at(2)
    worker.up = False
    roster.refresh(worker)
    meanwhile = owners(policy, roster)
    assert worker.url not in meanwhile.values()
    assert {key for key in before if before[key] != meanwhile[key]} == {
        key for key, url in before.items() if url == worker.url
    }
    worker.up = True
    roster.refresh(worker)
    assert owners(policy, roster) == before


def test_a_new_worker_takes_keys_from_all_and_moves_no_others() -> None:
    """And gives them back when it goes."""
    policy = ConsistentHash()
    roster = roster_of(4, policy=policy)
    before = owners(policy, roster)
    new = worker_of(9)
    roster.add(new)
    after = owners(policy, roster)
    moved = {key for key in before if before[key] != after[key]}
    assert {after[key] for key in moved} == {new.url}
    assert 100 < len(moved) < 320
    roster.remove(new)
    assert owners(policy, roster) == before


def test_a_weight_that_changes_moves_as_many_keys() -> None:
    """As if it had been so from the start."""
    policy, roster = ConsistentHash(), roster_of(4)
    before = owners(policy, roster)
    roster.reweigh(roster.at(1), 3.0)
    assert owners(policy, roster) == owners(ConsistentHash(), roster_of(4, weights=(1, 3, 1, 1))) != before
    roster.reweigh(roster.at(1), 1.0)
    assert owners(policy, roster) == before


def test_keys_are_spread_by_weight() -> None:
    """Points on the circle are in proportion."""
    counted = Counter(owners(ConsistentHash(virtual_nodes=300), roster_of(3, weights=(1, 1, 2)), 4000).values())
    assert 800 < counted["http://w0:8000"] < 1200
    assert 800 < counted["http://w1:8000"] < 1200
    assert 1700 < counted["http://w2:8000"] < 2300


@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0])
def test_a_hot_key_is_bounded(factor: float) -> None:
    """Nobody is given more than the factor allows, and the key's own worker comes first."""
    policy = ConsistentHash(load_factor=factor)
    roster = roster_of(10, policy=policy)
    first = send(policy, roster, chat("hi", conversation="hot")).worker
    for number in range(1, 200):
        send(policy, roster, chat("hi", conversation="hot"))
        assert max(worker.load for worker in roster.members) <= ceil(factor * (number + 1) / 10)
    assert first.load == max(worker.load for worker in roster.members)


def test_most_are_down_and_a_worker_is_still_found() -> None:
    """Even when no point near the key has one that is up."""
    policy = ConsistentHash()
    roster = roster_of(300, policy=policy)
    for worker in roster.known()[:-1]:
        roster.drain(worker)
    assert {send(policy, roster, chat("hi", conversation=f"c{number}")).worker.index for number in range(50)} == {299}


def test_the_key_is_the_conversation_else_the_user_else_the_beginning() -> None:
    """Each stays the same in all requests of a conversation."""
    policy = ConsistentHash(load_factor=100)
    roster = roster_of(50, policy=policy)

    def worker(facts: Facts) -> int:
        held = send(policy, roster, facts)
        held.finish()
        return held.worker.index

    assert worker(chat("a", conversation="c", user="u")) == worker(chat("b", conversation="c", user="v"))
    assert worker(chat("a", conversation="k", parent="c")) == worker(chat("b", conversation="c"))
    assert worker(chat("a", user="u")) == worker(chat("b", user="u")) != worker(chat("b", user="v"))
    assert worker(chat("a", metadata={"user_id": "u"})) == worker(chat("b", user="u"))
    assert worker(chat("a")) == worker(chat("a", "b", "c")) != worker(chat("b", "b", "c"))
    assert worker(completion("x" * 5000)) == worker(completion("x" * 6000))
    assert worker(completion(list(range(300)))) == worker(completion(list(range(500))))


def test_the_system_prompt_alone_is_no_key() -> None:
    """Conversations of one application are not all the same."""
    policy = ConsistentHash(load_factor=100)
    roster = roster_of(20, policy=policy)
    chosen = set()
    for number in range(40):
        facts = chat("x", system="s" * 10_000)
        facts.payload.data["messages"] = [
            {"role": "system", "content": "y" * 10_000},
            {"role": "user", "content": f"question {number}"},
        ]
        chosen.add(send(policy, roster, facts).worker.index)
    assert len(chosen) > 10


@pytest.mark.parametrize("fields", [{"load_factor": 0.9}, {"virtual_nodes": 0}, {"virtual_nodes": 5000}])
def test_settings_have_bounds(fields: dict[str, Any]) -> None:
    """What cannot be meant is refused."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        ConsistentHash(**fields)
