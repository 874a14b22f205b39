"""The KV-cache events of vLLM and SGLang: what is in a message, and what it says of a worker's blocks."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import ormsgpack
from attrs import define, field, frozen

from plugins.dispatch.policies.kv_index import Holding, Tier

BLOCK_LIMIT: Final = 65536
"""Tokens that a block can have."""

RANKS: Final = 1024
"""Ranks that a worker can have."""

_PREFIX_KINDS: Final = frozenset((None, "full_attention", "mla_attention", "sink_full_attention"))
"""Kinds of caches of which a prompt's beginning needs every block; others drop blocks that it has no use for."""

_FIELDS: Final = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx", "kv_cache_spec_kind"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
"""The fields of each event, in the order that they have where an event is a list and no mapping."""


class WireError(ValueError):
    """A message or an event that is not as it should be."""


@frozen
class Batch:
    """The events of one message, and when the worker sent it, by its own clock."""

    time: float
    rank: int
    events: Sequence[Any]


def read_batch(payload: bytes) -> Batch:
    """Read a message.

    Raises:
        WireError: it is none.
    """
    try:
        data = ormsgpack.unpackb(payload)
    except ormsgpack.MsgpackDecodeError as error:
        raise WireError(f"no msgpack: {error}") from None
    if isinstance(data, dict):
        data = [data.get("ts"), data.get("events"), data.get("data_parallel_rank")]
    match data:
        case [int() | float() as time, list() as events, *rest]:
            rank = rest[0] if rest and type(rest[0]) is int else 0
            if not 0 <= rank < RANKS:
                raise WireError("no rank of a worker")
            return Batch(float(time), rank, events)
    raise WireError("no batch of events")


def root_of(salt: str | None) -> int:
    """What the number of a prompt's first block is made of besides the block."""
    return 0 if salt is None else _with_extra(0, [salt])


@define(eq=False)
class Ledger:
    """Enters events into what is known of one worker; each of its ranks has caches of its own."""

    holding: Holding
    bad: int = field(default=0, init=False)
    _ranks: set[int] = field(factory=set, init=False)

    def forget(self) -> None:
        """Forget what was entered here."""
        for rank in self._ranks:
            self.holding.clear(rank)

    def enter(self, batch: Batch) -> None:
        """Enter the events of a message; those that are not as they should be are counted as `bad`."""
        self._ranks.add(batch.rank)
        for event in batch.events:
            try:
                self._enter(event, batch.rank)
            except (WireError, TypeError, OverflowError):
                self.bad += 1

    def _enter(self, event: Any, rank: int) -> None:
        kind, fields = _read_event(event)
        if kind == "AllBlocksCleared":
            self.holding.clear(rank)
        elif kind == "BlockRemoved":
            for name in _names(fields.get("block_hashes")):
                self.holding.remove(name, _tier(fields, rank))
        elif kind == "BlockStored" and _is_prefix(fields):
            self._store(fields, rank)

    def _store(self, fields: dict[str, Any], rank: int) -> None:
        names, tokens, size = _names(fields.get("block_hashes")), fields.get("token_ids"), fields.get("block_size")
        if type(size) is not int or not 0 < size <= BLOCK_LIMIT or not isinstance(tokens, list):
            raise WireError("a block has no tokens or no size")
        if len(tokens) != size * len(names):
            raise WireError("the blocks do not have the tokens that they should have")
        extras = fields.get("extra_keys")
        if not isinstance(extras, list) or len(extras) != len(names):
            extras = [None] * len(names)
        parent = fields.get("parent_block_hash")
        number = _root(fields) if parent is None else self.holding.number(parent)
        if number is None:
            return  # it follows on a block that was never told of, so that nobody can say what it stands for
        self.holding.resize(size)
        tier = _tier(fields, rank)
        for place, (name, extra) in enumerate(zip(names, extras, strict=True)):
            if extra is not None:
                number = _with_extra(number, extra)
            number = hash((number, tuple(tokens[place * size : (place + 1) * size])))
            self.holding.store(name, number, tier)


def _is_prefix(fields: dict[str, Any]) -> bool:
    """Whether blocks are on the worker itself, and of use to whoever begins with them."""
    return fields.get("locality") != "REMOTE" and fields.get("kv_cache_spec_kind") in _PREFIX_KINDS


def _read_event(event: Any) -> tuple[str, dict[str, Any]]:
    match event:
        case {"type": str(kind)}:
            return kind, event
        case [str(kind), *values]:
            return kind, dict(zip(_FIELDS.get(kind, ()), values, strict=False))
    raise WireError("no event")


def _names(value: Any) -> list[Hashable]:
    if not isinstance(value, list):
        raise WireError("no hashes of blocks")
    return list(_checked(value))


def _checked(names: list[Any]) -> Iterator[Hashable]:
    for name in names:
        if type(name) is not int and not (isinstance(name, bytes) and len(name) <= 64):
            raise WireError("a hash of a block is neither a number nor a few bytes")
        yield name


def _tier(fields: dict[str, Any], rank: int) -> Tier:
    medium, group = fields.get("medium"), fields.get("group_idx")
    if not isinstance(medium, str | None) or not isinstance(group, int | None) or len(medium or "") > 64:
        raise WireError("a block is in no place")
    return rank, medium, group


def _root(fields: dict[str, Any]) -> int:
    lora = fields.get("lora_name") or fields.get("lora_id")
    return 0 if lora is None else hash((0, "lora", str(lora)))


def _with_extra(number: int, extra: Any) -> int:
    return hash((number, repr(extra)))
