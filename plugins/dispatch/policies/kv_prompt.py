"""What is to be known of a prompt before a worker is chosen by the blocks in its cache."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from attrs import define, field

from plugins.dispatch.policies.blocks import chain
from plugins.dispatch.policies.identity import identity_of
from plugins.dispatch.policies.kv_wire import root_of
from plugins.dispatch.policies.tokenizer import Tokenizer
from plugins.dispatch.policies.trtllm_hashes import conversation_key
from plugins.dispatch.policy import Facts

INLINE_TOKENS: Final = 4096
"""Token ids whose blocks are numbered at once; more are done by a thread, so that others do not wait."""


class Numbering(Protocol):
    """How the blocks of a prompt are numbered; may be used by several threads."""

    def make(self, tokens: Sequence[int], size: int, salt: str | None = None) -> list[int]:
        """The numbers of the blocks of `size` tokens; of what is not a token id, a TypeError."""
        ...


class OwnNumbering:
    """Numbers that are this process's own: for events that say which tokens are in a block."""

    def make(self, tokens: Sequence[int], size: int, salt: str | None = None) -> list[int]:
        """The numbers of the full blocks, without the last token, which a worker always computes."""
        return chain(tokens[:-1], size, root_of(salt))


@define(eq=False)
class KvPrompt:
    """One prompt. `pin` is what its conversation is known by, `tokens` how many token ids it has."""

    pin: int | None = None
    tokens: int = 0
    blocks: dict[int, list[int]] = field(factory=dict)
    """The numbers of its blocks, by the size of the blocks."""

    def cached(self, depth: int, size: int) -> int:
        """The tokens in so many blocks, of which the last may be shorter; the last token does not count."""
        return max(0, min(depth * size, self.tokens - 1))


@define(eq=False)
class Preparation:
    """Makes prompts ready: of token ids that the client sent, or that a tokenizer makes."""

    tokenizer: Tokenizer | None
    numbering: Numbering

    def begin(self, facts: Facts, sizes: Sequence[int]) -> Awaitable[None] | None:
        """Leave a prompt in the notes, now or from a thread; what this returns is to be awaited."""
        ids = facts.prompt.ids
        if len(ids or ()) > INLINE_TOKENS or (ids is None and self.tokenizer is not None):
            return self._in_thread(facts, sizes)
        facts.notes = self.make(facts, ids, sizes)
        return None

    def make(self, facts: Facts, ids: Sequence[int] | None, sizes: Sequence[int]) -> KvPrompt:
        """A prompt with these token ids, or with none."""
        prompt = KvPrompt(self._pin(facts, ids))
        salt = facts.payload.data.get("cache_salt")
        if ids and isinstance(salt, str | None):
            try:
                prompt.blocks = {size: self.numbering.make(ids, size, salt) for size in sizes}
                prompt.tokens = len(ids)
            except TypeError:
                prompt.blocks = {}
        return prompt

    async def _in_thread(self, facts: Facts, sizes: Sequence[int]) -> None:
        def work() -> KvPrompt:
            return self.make(facts, self.tokens(facts), sizes)

        facts.notes = await asyncio.get_running_loop().run_in_executor(None, work)

    def tokens(self, facts: Facts) -> Sequence[int] | None:
        """The token ids of a prompt: the client's own, or made here, or None."""
        ids = facts.prompt.ids
        return ids if ids is not None or self.tokenizer is None else self.tokenizer.encode(facts.payload.data)

    def _pin(self, facts: Facts, ids: Sequence[int] | None) -> int | None:
        identity = identity_of(facts.conversation)
        if identity is not None:
            return hash(identity)
        key = conversation_key(facts.payload.data, ids)
        return key - (1 << 64) if key is not None and key >> 63 else key  # as a hash is, with a sign
