"""The KV cache events of a TensorRT-LLM worker, and the hash by which they name blocks."""

from collections.abc import Sequence
from itertools import count
from typing import Final

from attrs import define, field

from plugins.dispatch.embedded.stub.cache import Block, PrefixCache

HASH_ALGORITHM: Final = "v1_block_key"

_MASK_32: Final = (1 << 32) - 1
_MASK_64: Final = (1 << 64) - 1


@define(eq=False)
class CacheEvents:
    """Tells what has come into a prefix cache and gone from it since it was asked last."""

    cache: PrefixCache
    _hashes: dict[int, int] = field(factory=dict, init=False)
    _ids: "count[int]" = field(factory=count, init=False)
    _told: bool = field(default=False, init=False)

    def take(self) -> list[dict[str, object]]:
        """Give the events since the last time; the first of all says that there is a cache."""
        taken: list[dict[str, object]] = []
        if not self._told:
            self._told = True
            taken.append(self._event({"type": "created", "num_blocks_per_cache_level": [self.cache.capacity, 0]}))
        while self.cache.events:
            kind, block = self.cache.events.popleft()
            data = self._stored(block) if kind == "stored" else self._removed(block)
            if data is not None:
                taken.append(self._event(data))
        return taken

    def _stored(self, block: Block) -> dict[str, object] | None:
        parent = None if block.parent is None else self._hashes.get(block.parent)
        if block.parent is not None and parent is None:
            return None  # too much has happened since the last time
        number = self._hashes[block.key] = hash_block(block.tokens, parent)
        return {"type": "stored", "parent_hash": parent, "blocks": [{"block_hash": number}]}

    def _removed(self, block: Block) -> dict[str, object] | None:
        number = self._hashes.pop(block.key, None)
        return None if number is None else {"type": "removed", "block_hashes": [number]}

    def _event(self, data: dict[str, object]) -> dict[str, object]:
        return {"event_id": next(self._ids), "hash_algo": HASH_ALGORITHM, "data": data}


def hash_block(tokens: Sequence[int], parent: int | None = None) -> int:
    """Hash a block of tokens after its parent, as `v1_block_key` does."""
    seed = len(tokens) ^ (((parent or 0) * 0xBF58476D1CE4E5B9) & _MASK_64)
    for token in tokens:
        value = token & _MASK_32
        for _ in range(2):
            value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK_32
        value = (((value >> 16) ^ value) + 0x9E3779B9) & _MASK_32
        seed ^= (value + (seed << 6) + (seed >> 2)) & _MASK_64
        seed &= _MASK_64
    return seed
