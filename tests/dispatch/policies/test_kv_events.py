"""The choice by cached blocks: score, cap, pins, and what is left when there are no token ids."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugins.dispatch.policies import kv_prompt, kv_sources
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.kv_wire import WireError
from plugins.dispatch.policies.zmq_addresses import address_of, read_addresses
from plugins.dispatch.policy import Facts, Match
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Worker
from tests.dispatch.policies.support import Held, chat, completion, roster_of, send

SIZE = 32


def ids(*parts: int) -> list[int]:
    """The token ids of blocks, and one more."""
    return [*(part for part in parts for _ in range(SIZE)), 99_999]


def give(policy: KvEvents, worker: Worker, *parts: int) -> None:
    """Have a worker hold the blocks of a prompt."""
    holding = policy.holding(worker)
    holding.resize(SIZE)
    for number in policy._state.preparation.numbering.make(ids(*parts), SIZE):
        holding.store(number, number)


def pair(**fields: Any) -> tuple[KvEvents, Roster]:
    """A policy that pins nothing, and three workers."""
    policy = KvEvents(**{"max_sessions": 0, **fields})
    return policy, roster_of(3, policy=policy)


def load(roster: Roster, *loads: int) -> None:
    """Put requests on workers."""
    for index, number in enumerate(loads):
        for _ in range(number):
            roster.charge(roster.at(index), 1)


def ask(policy: KvEvents, roster: Roster, *parts: int) -> Held:
    """Send a prompt."""
    return send(policy, roster, completion(ids(*parts)))


@pytest.mark.parametrize("source", ["zmq", "polled"])
def test_the_longest_beginning_wins(source: str) -> None:
    """And the match says how long it is."""
    policy, roster = pair(source=source)
    give(policy, roster.at(0), 1)
    give(policy, roster.at(1), 1, 2, 3)
    give(policy, roster.at(2), 9, 2, 3)
    held = ask(policy, roster, 1, 2, 3, 4)
    assert (held.worker.index, held.facts.match) == (1, Match(96, 129))
    assert ask(policy, roster, 9, 2).worker.index == 2


def test_a_request_weighs_a_quarter_of_a_block() -> None:
    """Twelve requests are worth three blocks, and no less."""
    for requests, expected in ((11, 1), (13, 0)):
        policy, roster = pair()
        give(policy, roster.at(1), 1, 2, 3)
        load(roster, 0, requests, requests)
        assert ask(policy, roster, 1, 2, 3).worker.index == expected


def test_the_weight_of_load_can_be_set() -> None:
    """With none, only the cache counts."""
    policy, roster = pair(load_weight=0.0)
    give(policy, roster.at(1), 1)
    load(roster, 0, 500, 0)
    assert ask(policy, roster, 1).worker.index == 1
    policy, roster = pair(load_weight=10.0)
    give(policy, roster.at(1), 1)
    load(roster, 0, 1, 0)
    assert ask(policy, roster, 1).worker.index == 0


def test_a_worker_at_its_cap_is_not_chosen_for_its_cache() -> None:
    """Unless all are."""
    policy, roster = pair(load_cap=0.5, max_batch_size=8, load_weight=0.0)
    give(policy, roster.at(1), 1, 2)
    load(roster, 0, 3, 0)
    assert ask(policy, roster, 1, 2).worker.index == 1
    assert roster.at(1).load == 4
    assert ask(policy, roster, 1, 2).worker.index != 1
    load(roster, 9, 9, 9)
    assert ask(policy, roster, 1, 2).worker.index == 1


def test_ties_go_round() -> None:
    """Those with as much cached and as much to do take turns."""
    policy, roster = pair()
    for worker in roster.members:
        give(policy, worker, 1, 2)
    chosen = []
    for _ in range(6):
        held = ask(policy, roster, 1, 2)
        chosen.append(held.worker.index)
        held.finish()
    assert chosen == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("named", [True, False])
def test_a_conversation_stays_whoever_has_more_of_it(named: bool) -> None:
    """By its name, or by its first messages and token ids."""
    policy = KvEvents()
    roster = roster_of(3, policy=policy)

    def facts() -> Facts:
        conversation = "c" if named else None
        return chat("hello", conversation=conversation, prompt_token_ids=ids(1, 2))

    first = send(policy, roster, facts()).worker
    other = next(worker for worker in roster.members if worker is not first)
    give(policy, other, 1, 2)
    load(roster, 5, 5, 5)
    assert send(policy, roster, facts()).worker is first
    assert send(policy, roster, facts(), but=[first]).worker is other
    assert send(policy, roster, facts()).worker is other


def test_a_pin_gives_way_to_the_cap() -> None:
    """A conversation does not overload its worker."""
    policy = KvEvents(load_cap=1.0, max_batch_size=2)
    roster = roster_of(2, policy=policy)
    first = send(policy, roster, chat("x", conversation="c")).worker
    assert send(policy, roster, chat("x", conversation="c")).worker is first
    assert send(policy, roster, chat("x", conversation="c")).worker is not first


def test_pins_are_bounded_and_leave_with_their_worker() -> None:
    """The last ones are kept."""
    policy = KvEvents(max_sessions=10)
    roster = roster_of(2, policy=policy)
    for number in range(100):
        send(policy, roster, chat("x", conversation=f"c{number}"))
    assert len(policy._state.pins) == 10
    roster.remove(roster.at(0))
    assert len(policy._state.pins) == 5


def test_without_token_ids_load_decides() -> None:
    """A text cannot be looked for; its conversation can."""
    policy = KvEvents()
    roster = roster_of(3, policy=policy)
    chosen = [send(policy, roster, completion("x" * 1000 + str(number))) for number in range(6)]
    assert [held.worker.index for held in chosen] == [0, 1, 2, 0, 1, 2]
    assert chosen[0].facts.match is None


def test_a_salted_prompt_finds_only_salted_blocks() -> None:
    """Tenants that are kept apart by the workers are kept apart here."""
    policy, roster = pair()
    give(policy, roster.at(1), 1, 2)
    held = send(policy, roster, completion(ids(1, 2), cache_salt="s"))
    assert held.facts.match == Match(0, 65)


@pytest.mark.anyio
async def test_a_long_prompt_is_numbered_by_a_thread() -> None:
    """Others go on meanwhile; the choice is the same."""
    policy, roster = pair()
    parts = tuple(range(1, 3 + kv_prompt.INLINE_TOKENS // SIZE))
    give(policy, roster.at(2), *parts)
    facts = completion(ids(*parts))
    preparation = policy.prepare(facts)
    assert preparation is not None
    assert facts.notes is None
    await preparation
    assert send(policy, roster, facts).worker.index == 2
    many = [completion(ids(*parts, number)) for number in range(20)]
    await asyncio.gather(*(waiting for facts in many if (waiting := policy.prepare(facts)) is not None))
    assert all(
        send(policy, roster, facts).facts.match == Match(len(parts) * SIZE, 129 + len(parts) * SIZE - 96)
        for facts in many
    )


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings them, when the configuration is read."""
    monkeypatch.setattr(kv_sources, "MISSING_ZMQ", True)
    with pytest.raises(ValueError, match=r"kv_events needs pyzmq, of the extra `kv-events`"):
        KvEvents()
    KvEvents("polled")
    monkeypatch.setattr(kv_sources, "MISSING_BLAKE3", True)
    with pytest.raises(ValueError, match="needs blake3 and pyzmq"):
        KvEvents()
    with pytest.raises(ValueError, match="needs blake3, of"):
        KvEvents("polled")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens_per_block": 0}, "tokens_per_block"),
        ({"load_weight": -1.0}, "load_weight"),
        ({"load_cap": 0.0}, "load_cap"),
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"endpoint": "http://x:1"}, "endpoint is tcp://HOST:PORT"),
        ({"endpoint": "tcp://x"}, "endpoint is tcp://HOST:PORT"),
        ({"bind": "ipc:///tmp/x"}, "bind is tcp://HOST:PORT"),
        ({"bind": "tcp://{host}:1"}, "an address of this machine"),
        ({"bind": "tcp://*:1", "endpoint": "tcp://{host}:1"}, "in place of endpoint"),
        ({"source": "polled", "endpoint": "tcp://{host}:1"}, "for the source 'zmq'"),
        ({"ranks": 0}, "ranks"),
        ({"chat_template": Path("x")}, "of no use without tokenizer"),
        ({"tokenizer": Path("/nonexistent")}, "tokenizer cannot be read"),
    ],
)
def test_settings_have_bounds(fields: dict[str, Any], message: str) -> None:
    """What cannot be meant is refused."""
    with pytest.raises(ValueError, match=message):
        KvEvents(**fields)


def test_addresses_are_at_the_workers_host() -> None:
    """One port higher for each rank; also where the worker names what only it can bind."""
    worker = Worker("http://10.0.0.7:8000", 0)
    assert address_of("tcp://{host}:5557", worker) == "tcp://10.0.0.7:5557"
    assert address_of("tcp://*:5557", worker, 2) == "tcp://10.0.0.7:5559"
    assert address_of("tcp://0.0.0.0:1", Worker("http://[::1]:8000", 0)) == "tcp://[::1]:1"
    assert address_of("tcp://other:1", worker) == "tcp://other:1"
    for template in ("tcp://{host}:65536", "tcp://{host}:0", "ipc:///x", "tcp://a b:1", "tcp://x:1;y"):
        with pytest.raises(WireError):
            address_of(template, worker)
    named = b'[{"data_parallel_rank": 0, "endpoint": "tcp://1.2.3.4:5", "replay_endpoint": null}]'
    assert [(found.live, found.replay) for found in read_addresses(named, worker)] == [("tcp://1.2.3.4:5", None)]
