"""The hashes by which TensorRT-LLM names blocks of tokens, salts and conversations, bit for bit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from plugins.dispatch.policies.blocks import chain

try:
    from blake3 import blake3
except ImportError:  # part of the extra `kv-events`; whoever needs it looks at `MISSING` first
    MISSING = True
else:
    MISSING = False

BLOCK_TOKENS: Final = 32
"""Tokens in a block of TensorRT-LLM's, where nothing else is said."""

PREFIX_TOKENS: Final = 256
"""Token ids of a prompt that make a conversation's key."""

_ROUTE_KEY: Final = b"TensorRT-LLM-route-affinity-v1!!"
_LOW32: Final = 0xFFFFFFFF
_LOW64: Final = 0xFFFFFFFFFFFFFFFF
_GOLDEN: Final = 0x9E3779B9
_MIXED_LIMIT: Final = 1 << 18

_mixed: Final[dict[int, int]] = {}


def v1_block_key(
    tokens: Sequence[int], parent: int | None = None, *, salt_id: int | None = None, lora_id: int | None = None
) -> int:
    """The hash `v1` of one block, whose parent is the hash of the block before it.

    Raises:
        TypeError: a token is no plain integer.
    """
    seed = len(tokens) ^ (parent or 0) * 0xBF58476D1CE4E5B9 & _LOW64
    if parent is None and salt_id is not None:
        seed = _mix64(salt_id, seed)
    for token in tokens:
        mixed = _mixed.get(token)
        if mixed is None:
            mixed = _mix_token(token)
        seed ^= mixed + (seed << 6) + (seed >> 2) & _LOW64
    return seed if lora_id is None else _mix64(lora_id, seed)


def salt_id_of(salt: str) -> int:
    """The number of a cache salt."""
    return _first64(salt.encode(errors="surrogatepass"))


def conversation_key(data: Mapping[str, Any], ids: Sequence[int] | None) -> int | None:
    """What a conversation is known by that does not say who it is; None of a prompt of which nothing is known."""
    messages = data.get("messages")
    text = "".join(_text(message) for message in messages[:2]) if isinstance(messages, list) else ""
    if ids:
        text += str(list(ids[:PREFIX_TOKENS]))
    return _first64(text.encode(errors="surrogatepass"), _ROUTE_KEY) if text else None


@define(eq=False)
class BlockKeys:
    """Makes the hashes of prompts, and remembers those of blocks, as most prompts begin as one before did.

    May be used by several threads. `limit`: blocks that are remembered for sure.
    """

    limit: int = 1 << 16
    _young: dict[int, int] = field(factory=dict, init=False)
    _old: dict[int, int] = field(factory=dict, init=False)

    def make(self, tokens: Sequence[int], size: int, salt: str | None = None) -> list[int]:
        """The hashes of all blocks of a prompt without its last token; the last block may be shorter.

        Raises:
            TypeError: a token is no plain integer.
        """
        tokens = tokens[:-1]
        salt_id = None if salt is None else salt_id_of(salt)
        keys: list[int] = []
        parent = None
        for place, number in enumerate(chain(tokens, size, salt_id or 0)):
            key = self._young.get(number)
            if key is None:
                key = self._old.get(number)
                if key is None:
                    key = v1_block_key(tokens[place * size : place * size + size], parent, salt_id=salt_id)
                self._keep(number, key)
            keys.append(key)
            parent = key
        rest = tokens[len(keys) * size : (len(keys) + 1) * size]
        if rest:
            keys.append(v1_block_key(rest, parent, salt_id=salt_id))
        return keys

    def _keep(self, number: int, key: int) -> None:
        if len(self._young) >= self.limit:
            self._old, self._young = self._young, {}
        self._young[number] = key


def _mix_token(token: int) -> int:
    if type(token) is not int:
        raise TypeError("a token id is a plain integer")
    value = token & _LOW32
    value = ((value >> 16) ^ value) * 0x45D9F3B & _LOW32
    value = ((value >> 16) ^ value) * 0x45D9F3B & _LOW32
    value = ((value >> 16) ^ value) + _GOLDEN & _LOW32
    if len(_mixed) >= _MIXED_LIMIT:
        _mixed.clear()
    _mixed[token] = value
    return value


def _mix64(value: int, seed: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _LOW64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _LOW64
    value ^= value >> 31
    return seed ^ (value + _GOLDEN + (seed << 6) + (seed >> 2)) & _LOW64


def _first64(data: bytes, key: bytes | None = None) -> int:
    digest = (blake3(data) if key is None else blake3(data, key=key)).digest(8)
    return int.from_bytes(digest, "little")


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
