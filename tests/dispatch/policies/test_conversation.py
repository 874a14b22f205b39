"""Conversations stay where they are."""

import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from plugins.dispatch.policies.conversation import StickyConversation
from plugins.dispatch.policies.sessions import SESSION_BLOCKS, Sessions
from plugins.dispatch.policy import Facts
from tests.dispatch.policies.support import chat, completion, roster_of, send, worker_of


def text(number: int, blocks: int) -> str:
    """A text of about so many blocks of ten tokens, unlike that of another number."""
    return "".join(f"{number:08}-{place:08}-{'x' * 32}" for place in range(blocks))[: blocks * 50 - 6]


def again(*, named: bool) -> Facts:
    """One more request of the same conversation."""
    return chat("hi", conversation="c") if named else chat(text(1, 8))


def test_a_named_conversation_stays() -> None:
    """However loaded its worker is, and whatever it says."""
    policy = StickyConversation()
    roster = roster_of(4, policy=policy)
    first = {name: send(policy, roster, chat("hi", conversation=name)).worker for name in "abcdefgh"}
    assert Counter(worker.index for worker in first.values()) == {0: 2, 1: 2, 2: 2, 3: 2}
    for _ in range(5):
        for name, worker in first.items():
            assert send(policy, roster, chat("other " * 50, conversation=name)).worker is worker


def test_a_new_conversation_goes_to_the_fewest_tokens() -> None:
    """A long prompt weighs more than several short ones."""
    policy = StickyConversation()
    roster = roster_of(2, policy=policy)
    assert send(policy, roster, chat("x" * 5000, conversation="long")).worker.index == 0
    assert [send(policy, roster, chat("x", conversation=f"s{place}")).worker.index for place in range(5)] == [1] * 5


def test_a_sub_agent_goes_where_its_parent_is() -> None:
    """Its own identity is not looked at."""
    policy = StickyConversation()
    roster = roster_of(5, policy=policy)
    parent = send(policy, roster, chat("hi", conversation="parent")).worker
    for number in range(10):
        child = chat("hi", conversation=f"child{number}", parent="parent")
        assert send(policy, roster, child).worker is parent


def test_a_conversation_that_is_left_out_once_comes_back() -> None:
    """One that was to be avoided this time only still has its conversation, by name or by beginning."""
    policy = StickyConversation(tokens_per_block=10)
    roster = roster_of(3, policy=policy)
    for named in (True, False):
        worker = send(policy, roster, again(named=named)).worker
        assert send(policy, roster, again(named=named), but=[worker]).worker is not worker
        assert send(policy, roster, again(named=named)).worker is worker


@pytest.mark.parametrize("named", [True, False])
def test_a_conversation_moves_when_its_worker_is_down(named: bool) -> None:
    """And stays where it then is, as its cache is there now."""
    policy = StickyConversation(tokens_per_block=10)
    roster = roster_of(3, policy=policy)
    old = send(policy, roster, again(named=named)).worker
    old.up = False
    roster.refresh(old)
    new = send(policy, roster, again(named=named)).worker
    assert new is not old
    old.up = True
    roster.refresh(old)
    assert send(policy, roster, again(named=named)).worker is new


def test_a_removed_worker_loses_its_conversations() -> None:
    """Those of others are kept."""
    policy = StickyConversation()
    roster = roster_of(2, policy=policy)
    for number in range(10):
        send(policy, roster, chat("hi", conversation=f"c{number}"))
    gone = roster.at(0)
    roster.remove(gone)
    assert len(policy._sessions) == 5
    roster.add(worker_of(9))
    assert {send(policy, roster, chat("hi", conversation=f"c{number}")).worker.index for number in range(10)} == {0, 1}


def test_only_the_last_conversations_are_remembered() -> None:
    """The bound holds, and what was used is kept before what was not."""
    policy = StickyConversation(max_sessions=100)
    roster = roster_of(7, policy=policy)
    kept = send(policy, roster, chat("hi", conversation="kept")).worker
    for number in range(1000):
        send(policy, roster, chat("hi", conversation=f"c{number}"))
        assert send(policy, roster, chat("hi", conversation="kept")).worker is kept
    assert len(policy._sessions) == 100


def test_a_huge_identity_costs_no_more_than_a_small_one() -> None:
    """It is not kept, only what it hashes to."""
    policy = StickyConversation()
    roster = roster_of(7, policy=policy)
    send(policy, roster, chat("hi", conversation="\U0001f600" * 1024))
    assert all(isinstance(key, int) for key in policy._sessions._sessions)


@pytest.mark.parametrize(("known", "expected"), [(8, True), (7, True), (6, True), (5, False), (0, False)])
def test_a_beginning_counts_from_the_threshold_on(known: int, expected: bool) -> None:
    """Of eight blocks, six are three quarters."""
    policy = StickyConversation(tokens_per_block=10)
    roster = roster_of(2, policy=policy)
    base = text(1, 8)
    assert send(policy, roster, chat(base)).worker.index == 0
    for _ in range(8):
        roster.charge(roster.at(0), 100)
    other = base[: max(0, known * 50 - 5)] + text(2, 20)
    assert (send(policy, roster, chat(other[: 8 * 50 - 6])).worker.index == 0) is expected


def test_a_session_grows_with_its_conversation() -> None:
    """Each turn is known by the one before, however long it gets."""
    policy = StickyConversation(tokens_per_block=10)
    roster = roster_of(5, policy=policy)
    contents = [text(1, 4)]
    worker = send(policy, roster, chat(*contents)).worker
    for turn in range(30):
        for number in range(4):
            send(policy, roster, chat(text(100 + 10 * turn + number, 6)))
        contents += [text(3, 1), "ok"]
        assert send(policy, roster, chat(*contents)).worker is worker
    assert len(policy._sessions) == 1 + 30 * 4


def test_conversations_with_the_same_beginning_do_not_lose_each_other() -> None:
    """Two that share a session both go on."""
    policy = StickyConversation(tokens_per_block=10)
    roster = roster_of(5, policy=policy)
    base = text(1, 9)
    worker = send(policy, roster, chat(base)).worker
    one, two = base + text(2, 2), base + text(3, 2)
    for _ in range(3):
        assert send(policy, roster, chat(one)).worker is worker
        assert send(policy, roster, chat(two)).worker is worker
        one, two = one + text(2, 2), two + text(3, 2)


def test_what_all_share_can_be_skipped() -> None:
    """A system prompt of which every conversation has the same does not make them one."""
    shared = text(0, 40)
    for skip, expected in ((0, 1), (400, 4)):
        policy = StickyConversation(tokens_per_block=10, hash_skip_count=skip)
        roster = roster_of(4, policy=policy)
        chosen = {send(policy, roster, chat(shared + text(number, 6))).worker.index for number in range(1, 9)}
        assert len(chosen) == expected


def test_token_ids_are_used_where_they_are_wanted() -> None:
    """Two chats of the same ids are one, whatever their text is; of a bare prompt there is nothing else."""
    policy = StickyConversation(tokens_per_block=10, use_token_ids=True)
    roster = roster_of(3, policy=policy)
    worker = send(policy, roster, chat(text(1, 9), prompt_token_ids=list(range(50)))).worker
    assert send(policy, roster, chat(text(2, 9), prompt_token_ids=list(range(50)))).worker is worker
    assert send(policy, roster, completion(list(range(55)))).worker is worker
    plain = StickyConversation(tokens_per_block=10)
    first = send(plain, roster, chat(text(1, 9), prompt_token_ids=list(range(50)))).worker
    assert send(plain, roster, chat(text(2, 9), prompt_token_ids=list(range(50)))).worker is not first


def test_a_block_goes_with_its_last_owner() -> None:
    """What a later conversation took over is not forgotten with the one that had it first."""
    sessions = Sessions(3, 1000)
    one, two = worker_of(0), worker_of(1)
    sessions.begin([1, 2, 3, 4], one)
    sessions.begin([1, 2, 8, 9], two)
    sessions.evict(one)
    found, known = sessions.like([1, 2, 5], 0.6)
    assert found is not None
    assert (found.worker, known) == (two, 2)


def test_a_prompt_of_less_than_a_block_makes_no_session() -> None:
    """Nothing can be known by it."""
    policy = StickyConversation()
    roster = roster_of(3, policy=policy)
    assert [send(policy, roster, chat("hi")).worker.index for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert len(policy._sessions) == 0


def test_blocks_are_bounded_in_all_and_for_each_session() -> None:
    """One conversation that never ends, and many that begin, stay within their bounds."""
    sessions = Sessions(50, 10_000)
    worker = worker_of(0)
    chance = random.Random(1)
    base = [chance.getrandbits(60) for _ in range(800)]
    sessions.begin(base, worker)
    for _ in range(100):
        assert sessions.like(base + [chance.getrandbits(60) for _ in range(200)], 0.75)[0] is not None
        sessions.begin([chance.getrandbits(60) for _ in range(300)], worker)
        assert len(sessions) <= 50
        assert sessions.blocks <= 10_000
        held: list[Collection[int]] = [session.blocks or () for session in sessions._sessions.values()]
        assert max(map(len, held)) <= SESSION_BLOCKS
        assert set(sessions._owners) <= {block for blocks in held for block in blocks}
    sessions.evict(worker)
    assert (len(sessions), sessions.blocks) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"match_threshold": 0},
        {"match_threshold": 1.5},
        {"tokens_per_block": 0},
        {"hash_skip_count": -1},
        {"max_sessions": 0},
    ],
)
def test_settings_have_bounds(fields: dict[str, Any]) -> None:
    """What cannot be meant is refused."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        StickyConversation(**fields)
