"""What vLLM's and SGLang's events say, and that nothing they might say does harm."""

import json
import random
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from plugins.dispatch.policies.kv_index import TIERS, Holding, KvIndex
from plugins.dispatch.policies.kv_prompt import OwnNumbering
from plugins.dispatch.policies.kv_wire import Batch, Ledger, WireError, read_batch
from plugins.dispatch.policies.prefix_index import groups

RECORDED = [json.loads(line) for line in Path(__file__).with_name("vllm_kv_events.jsonl").read_text().splitlines()]

LONG = list(range(96))


def ledger(place: int = 0, *, limit: int = 1000, index: KvIndex | None = None) -> Ledger:
    """A ledger of a worker of which nothing is known."""
    return Ledger(Holding(index or KvIndex(), place, limit))


def stored(names: list[Any], tokens: list[Any], size: int = 32, parent: Any = None, **fields: Any) -> dict[str, Any]:
    """An event as vLLM sends it."""
    event = {"type": "BlockStored", "block_hashes": names, "parent_block_hash": parent, "token_ids": tokens}
    return {**event, "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, **fields}


def removed(names: list[Any], **fields: Any) -> dict[str, Any]:
    """Another one."""
    return {"type": "BlockRemoved", "block_hashes": names, "medium": "GPU", **fields}


def batch(*events: Any, rank: int = 0) -> Batch:
    """A message as it is read."""
    return read_batch(ormsgpack.packb([1.0, list(events), rank]))


def depth(known: Ledger, tokens: list[Any], salt: str | None = None, size: int = 32) -> int:
    """How many blocks of a prompt the worker has; one more token is never looked for."""
    found = groups(known.holding.index.holders, OwnNumbering().make([*tokens, 0], size, salt), -1)
    return found[0][0] if found else 0


def test_recorded_events_lead_to_the_worker_that_has_the_prompt() -> None:
    """A real pair of vLLM: what each stored is found on it, with its salt, and on no other."""
    index = KvIndex()
    ledgers = {topic: ledger(place, index=index) for place, topic in enumerate({line["topic"] for line in RECORDED})}
    for line in RECORDED:
        known = ledgers[line["topic"]]
        known.enter(read_batch(ormsgpack.packb(line["batch"])))
        assert known.bad == 0
        assert known.holding.size == 32
        event = line["batch"][1][0]
        if event["parent_block_hash"] is None:
            salt = None if event["extra_keys"][0] is None else event["extra_keys"][0][0]
            numbers = OwnNumbering().make([*event["token_ids"], 0], 32, salt)
            full = [group for group in groups(index.holders, numbers, -1) if group[0] == len(numbers)]
            assert full
            assert full[0][1] >> known.holding.place & 1
    assert {len(known.holding) for known in ledgers.values()} == {7, 8}


def test_blocks_follow_on_their_parents() -> None:
    """A prompt that was stored in two events is one, and one whose beginning is not known is none."""
    known = ledger()
    known.enter(batch(stored([1], LONG[:32]), stored([2, 3], LONG[32:], parent=1), stored([5], LONG[:32], parent=4)))
    assert (depth(known, LONG), depth(known, LONG[:70]), len(known.holding), known.bad) == (3, 2, 3, 0)


def test_a_salt_keeps_prompts_apart() -> None:
    """The first block has it, and with it all that follow."""
    known = ledger()
    known.enter(batch(stored([1, 2, 3], LONG, extra_keys=[["s"], None, None])))
    assert (depth(known, LONG, "s"), depth(known, LONG), depth(known, LONG, "t")) == (3, 0, 0)


def test_an_adapter_keeps_prompts_apart() -> None:
    """Blocks of a fine-tuned model are not those of its base."""
    known = ledger()
    known.enter(batch(stored([1, 2, 3], LONG, lora_name="a"), stored([4], LONG[:32], lora_id=3)))
    assert depth(known, LONG) == 0


def test_removed_blocks_are_not_found() -> None:
    """Those behind them are of no use any more; what was never there can be removed."""
    known = ledger()
    known.enter(batch(stored([1, 2, 3], LONG), removed([2, 77])))
    assert (depth(known, LONG), len(known.holding)) == (1, 2)
    known.enter(batch({"type": "AllBlocksCleared"}))
    assert (depth(known, LONG), len(known.holding), known.holding.index.holders) == (0, 0, {})


def test_a_block_is_there_as_long_as_it_is_in_one_place() -> None:
    """In the memory of the host when that of the device has dropped it."""
    known = ledger()
    known.enter(batch(stored([1], LONG[:32]), stored([1], LONG[:32], medium="CPU"), removed([1])))
    assert depth(known, LONG) == 1
    known.enter(batch(removed([1], medium="CPU")))
    assert depth(known, LONG) == 0


def test_ranks_are_cleared_by_themselves() -> None:
    """Each has a cache of its own."""
    known = ledger()
    known.enter(batch(stored([1], LONG[:32]), rank=0))
    known.enter(batch(stored([1, 2], LONG[:64]), rank=1))
    known.enter(batch({"type": "AllBlocksCleared"}, rank=1))
    assert depth(known, LONG) == 1


def test_only_caches_that_need_a_whole_beginning_count() -> None:
    """Blocks of sliding windows and states come and go by other rules; those elsewhere are not here."""
    known = ledger()
    for fields in (
        {"kv_cache_spec_kind": "sliding_window", "group_idx": 1},
        {"kv_cache_spec_kind": "mamba", "group_idx": 2},
        {"locality": "REMOTE"},
    ):
        known.enter(batch(stored([1], LONG[:32], **fields)))
    assert (len(known.holding), known.bad) == (0, 0)
    known.enter(batch(stored([1], LONG[:32], kv_cache_spec_kind="mla_attention", group_idx=0)))
    known.enter(batch(removed([1], group_idx=1)))
    assert depth(known, LONG) == 1


def test_events_may_be_lists_and_hashes_bytes() -> None:
    """As older versions of vLLM and SGLang send them."""
    known = ledger()
    known.enter(batch(["BlockStored", [b"\x01" * 32, b"\x02" * 32], None, LONG[:64], 32, None, "GPU"]))
    assert depth(known, LONG) == 2
    known.enter(batch(["BlockRemoved", [b"\x02" * 32], "GPU"], ["AllBlocksMoved"], {"type": "Unknown"}))
    assert (depth(known, LONG), known.bad) == (1, 0)
    known.enter(read_batch(ormsgpack.packb({"ts": 1, "events": [["AllBlocksCleared"]], "data_parallel_rank": None})))
    assert depth(known, LONG) == 0


BAD: list[Any] = [
    None,
    7,
    [],
    {},
    [3],
    {"type": "BlockStored"},
    {"type": "BlockRemoved"},
    {"type": "BlockRemoved", "block_hashes": [None]},
    {"type": "BlockRemoved", "block_hashes": [[1]]},
    {"type": "BlockRemoved", "block_hashes": ["text"]},
    {"type": "BlockRemoved", "block_hashes": [b"x" * 65]},
    {"type": "BlockRemoved", "block_hashes": [1], "medium": ["GPU"]},
    {"type": "BlockRemoved", "block_hashes": [1], "medium": "x" * 65},
    {"type": "BlockRemoved", "block_hashes": [1], "group_idx": "0"},
    stored([1], LONG),
    stored([1, 2, 3], LONG, size=0),
    stored([1, 2, 3], LONG, size=-32),
    stored([1], [0] * 70_000, size=70_000),
    stored([1, 2, 3], LONG, size=True),
    stored([1], None),  # type: ignore[arg-type]
    stored([1], [[]] * 32),
    stored([1], LONG[:32], parent=[1]),
    stored([1], LONG[:32], kv_cache_spec_kind=["full_attention"]),
]


@pytest.mark.parametrize("event", BAD, ids=range(len(BAD)))
def test_an_event_that_is_none_is_counted_and_does_no_harm(event: Any) -> None:
    """Those before and behind it count."""
    known = ledger()
    known.enter(Batch(1.0, 0, [stored([10], LONG[:32]), event, stored([11], LONG[32:64], parent=10)]))
    assert (known.bad, depth(known, LONG)) == (1, 2)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xff" * 100,
        ormsgpack.packb(None),
        ormsgpack.packb([]),
        ormsgpack.packb([1.0]),
        ormsgpack.packb(["now", []]),
        ormsgpack.packb([1.0, {}]),
        ormsgpack.packb([1.0, [], -1]),
        ormsgpack.packb([1.0, [], 10_000]),
        ormsgpack.packb({"events": []}),
        b"\x91" * 100_000,
    ],
)
def test_a_message_that_is_none_is_refused(payload: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(WireError):
        read_batch(payload)


def test_random_bytes_are_refused_or_harmless() -> None:
    """A real message with bytes changed is read, or not, and nothing else happens."""
    chance = random.Random(9)
    whole = ormsgpack.packb([1.0, [stored([1, 2, 3], LONG), removed([1])], 0])
    known = ledger()
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            known.enter(read_batch(bytes(changed[: chance.randrange(len(changed) + 1)])))
        except WireError:
            continue
    known.holding.clear()
    assert known.holding.index.holders == {}


def test_what_is_kept_of_a_worker_is_bounded() -> None:
    """The oldest blocks go first; places that are made up do not add up."""
    known = ledger(limit=100)
    for number in range(500):
        known.enter(batch(stored([number], [number] * 32)))
    assert (len(known.holding), len(known.holding.index.holders)) == (100, 100)
    assert (depth(known, [499] * 32), depth(known, [399] * 32)) == (1, 0)
    for number in range(1000):
        known.enter(batch(stored([number], [number] * 32, medium=f"m{number}")))
    assert len(known.holding) <= 100
    assert len(known.holding._tiers) <= TIERS


def test_a_name_that_gets_another_meaning_has_the_new_one() -> None:
    """Its old block is not found any more."""
    known = ledger()
    known.enter(batch(stored([1], LONG[:32]), stored([1], LONG[32:64])))
    assert (depth(known, LONG[:32]), depth(known, LONG[32:64]), len(known.holding)) == (0, 1, 1)


def test_sizes_are_counted_by_worker() -> None:
    """A worker that changes its size counts once."""
    index = KvIndex()
    one, two = ledger(0, index=index), ledger(1, index=index)
    one.enter(batch(stored([1], LONG[:32])))
    two.enter(batch(stored([1, 2], LONG[:32], size=16)))
    assert index.sizes == {32: 1, 16: 1}
    one.enter(batch(stored([1, 2], LONG[:32], size=16)))
    assert index.sizes == {16: 2}
    two.holding.resize(None)
    assert index.sizes == {16: 1}
