"""Prompts go where their beginning is, as long as that does not overload anybody."""

import random
from collections import Counter, OrderedDict
from typing import Any

import pytest

from plugins.dispatch.policies.blocks import chain
from plugins.dispatch.policies.prefix import Prefix
from plugins.dispatch.policies.prefix_index import PrefixIndex, groups, groups_of
from plugins.dispatch.policy import Facts, Match
from tests.dispatch.policies.support import chat, completion, roster_of, send, worker_of


def ids(*parts: int, size: int = 10) -> list[int]:
    """Token ids of blocks, each block the same number again and again."""
    return [part for part in parts for _ in range(size)]


def test_groups_are_those_with_as_much_of_a_prompt() -> None:
    """The longest first, each worker once, and only those that are asked for."""
    holders = {1: 0b11111, 2: 0b01110, 3: 0b01100, 4: 0b10100}
    assert groups(holders, [1, 2, 3, 4], 0b11111) == [(4, 0b00100), (3, 0b01000), (2, 0b00010), (1, 0b10001)]
    assert groups(holders, [1, 2], 0b00111) == [(2, 0b00110), (1, 0b00001)]
    assert groups(holders, [9, 1], 0b11111) == []
    assert groups(holders, [], 0b1) == groups(holders, [1], 0) == []


def test_groups_are_what_going_through_all_workers_would_give() -> None:
    """Whatever is held by whom."""
    chance = random.Random(5)
    for _ in range(300):
        blocks = chance.sample(range(1000), 12)
        holders = {block: chance.getrandbits(40) | chance.getrandbits(40) for block in blocks[: chance.randrange(13)]}
        mask = chance.getrandbits(40)
        depths: Counter[int] = Counter()
        for index in range(40):
            depth = 0
            while depth < 12 and holders.get(blocks[depth], 0) >> index & mask >> index & 1:
                depth += 1
            depths[depth] |= 1 << index
        del depths[0]
        assert groups(holders, blocks, mask) == sorted(depths.items(), reverse=True)


@pytest.mark.parametrize("text", [True, False])
def test_a_prompt_goes_where_most_of_it_is(text: bool) -> None:
    """Of text as of token ids, and one may hear how much that was."""
    policy = Prefix(tokens_per_block=10)
    roster = roster_of(3, policy=policy)

    def make(*parts: int) -> Facts:
        return completion("".join(str(part) * 50 for part in parts) if text else ids(*parts))

    assert [send(policy, roster, make(*parts)).worker.index for parts in ((1, 2), (3, 4), (5, 6))] == [0, 1, 2]
    for parts, index, cached in (((3, 4, 5), 1, 20), ((5, 6, 1), 2, 20), ((1, 2, 9), 0, 20), ((1, 2, 9, 9), 0, 30)):
        facts = make(*parts)
        held = send(policy, roster, facts)
        assert held.worker.index == index
        assert facts.match == Match(cached, 10 * len(parts))
        held.finish()


def test_a_conversation_stays() -> None:
    """Each turn begins as the one before."""
    policy = Prefix(tokens_per_block=10)
    roster = roster_of(5, policy=policy)
    contents = ["a" * 400]
    worker = None
    for turn in range(20):
        held = send(policy, roster, chat(*contents))
        assert worker in (None, held.worker)
        worker = held.worker
        held.finish()
        send(policy, roster, chat(f"{turn} other" * 50)).finish()
        contents += ["answer " * 20, "more " * 20]


def test_a_hot_prompt_does_not_drown_its_worker() -> None:
    """However many ask the same at once, nobody has more than the factor and the slack allow."""
    policy = Prefix(tokens_per_block=10, load_weight=0)
    roster = roster_of(10, policy=policy)
    hot = ids(*range(100))
    for number in range(300):
        send(policy, roster, completion(hot))
        assert max(worker.load for worker in roster.members) <= 1.5 * (number + 1) / 10 + 2
    assert sum(worker.load > 0 for worker in roster.members) >= 7


def test_load_outweighs_a_small_match() -> None:
    """Two blocks are not worth three requests; ten are."""
    policy = Prefix(tokens_per_block=10, slack=100)
    roster = roster_of(2, policy=policy)
    send(policy, roster, completion(ids(*range(10))))
    for _ in range(3):
        roster.charge(roster.at(0), 1)
    assert send(policy, roster, completion(ids(*range(2), 50, 51))).worker.index == 1
    assert send(policy, roster, completion(ids(*range(10)))).worker.index == 0


def test_a_new_worker_is_not_drowned() -> None:
    """A burst of new prompts levels it with the others and then spreads; known prompts stay where they are."""
    policy = Prefix(tokens_per_block=10)
    roster = roster_of(4, policy=policy)
    chosen = {}
    for number in range(40):
        chosen[number] = send(policy, roster, completion(ids(*range(number * 100, number * 100 + 20)))).worker
    roster.add(worker_of(9))
    for number in range(40):
        assert send(policy, roster, completion(ids(*range(number * 100, number * 100 + 20)))).worker is chosen[number]
    for number in range(100, 160):
        send(policy, roster, completion(ids(*range(number * 100, number * 100 + 20))))
    assert max(worker.load for worker in roster.members) - min(worker.load for worker in roster.members) <= 1


def note(index: PrefixIndex, blocks: list[int], worker: int) -> None:
    """Have a worker hold the blocks of a prompt."""
    index.add(blocks, index.follow(blocks), worker)


def test_the_index_is_bounded_and_forgets_leaves_first() -> None:
    """What is used stays, and a block never outlives the one before it."""
    index = PrefixIndex(100)
    kept = list(range(20))
    chance = random.Random(2)
    for number in range(200):
        note(index, kept, number % 8)
        note(index, [chance.getrandbits(60) for _ in range(30)], 1)
        assert len(index) <= 100
        assert groups_of(index.follow(kept), 0xFF)[0] == (20, (1 << min(8, number + 1)) - 1)
    long = list(range(1000, 1100))
    note(index, long, 3)
    assert [groups_of(index.follow(blocks), 0b1000) for blocks in (long, kept)] == [[(100, 0b1000)], []]
    note(index, [*long, 7], 3)
    assert groups_of(index.follow([*long, 7]), 0b1000) == [(100, 0b1000)]


@pytest.mark.parametrize(("limit", "told"), [(40, 0.0), (10_000, 0.3)])
def test_runs_are_what_going_block_by_block_would_give(limit: int, told: float) -> None:
    """Prompts that begin alike, that are heard of in part, and workers that go."""
    chance, index = random.Random(limit), PrefixIndex(limit)
    holders: OrderedDict[int, int] = OrderedDict()
    for _ in range(3000):
        blocks = chain([chance.randrange(2) for _ in range(chance.randrange(1, 9))], 1)
        path, worker, mask = index.follow(blocks), chance.randrange(6), chance.getrandbits(6)
        assert groups_of(path, mask) == groups(holders, blocks, mask)
        if chance.random() < told:  # another process tells what its worker did not have yet
            depth = sum(depth for depth, having in groups_of(path, 0b111111) if having >> worker & 1)
            blocks = blocks[depth:]
            path = index.follow(blocks)
        index.add(blocks, path, worker)
        for block in reversed(blocks):
            holders[block] = holders.get(block, 0) | 1 << worker
            holders.move_to_end(block)
        while len(holders) > limit:
            holders.popitem(last=False)
        if chance.random() < 0.02:
            index.evict(worker)
            kept = ((block, mask & ~(1 << worker)) for block, mask in holders.items())
            holders = OrderedDict((block, mask) for block, mask in kept if mask)
        assert len(index) == len(holders)
        assert sorted(block for run in index._used for block in run.blocks) == sorted(holders)


def test_whatever_numbers_are_heard_the_books_are_right() -> None:
    """Parts of prompts whose beginning is not known, and numbers that stand for nothing."""
    chance, index = random.Random(4), PrefixIndex(30)
    for _ in range(20_000):
        start, length = chance.randrange(12), chance.randrange(8)
        blocks = [*range(start, start + length)] if chance.random() < 0.7 else chance.choices(range(12), k=length)
        note(index, blocks, chance.randrange(4))
        if chance.random() < 0.01:
            index.evict(chance.randrange(4))
        assert len(index) == sum(len(run.blocks) for run in index._used) <= 30
        assert index._runs == {run.blocks[0]: run for run in index._used}


def test_a_policy_stays_within_its_bound() -> None:
    """A stream of prompts that nobody sends again fills no memory."""
    policy = Prefix(tokens_per_block=1, max_blocks=1024)
    roster = roster_of(3, policy=policy)
    for number in range(50):
        send(policy, roster, completion(list(range(number * 2000, number * 2000 + 1500)))).finish()
    assert len(policy._index) == 1024


@pytest.mark.parametrize(
    "fields",
    [{"tokens_per_block": 0}, {"load_weight": -1}, {"load_factor": 0.5}, {"slack": -1}, {"max_blocks": 10}],
)
def test_settings_have_bounds(fields: dict[str, Any]) -> None:
    """What cannot be meant is refused."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        Prefix(**fields)
