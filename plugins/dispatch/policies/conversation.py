"""The worker that has the conversation already."""

from collections.abc import Sequence
from typing import Final

from attrs import Factory, field, frozen, validators

from plugins.board import Record
from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policies.blocks import prompt_blocks
from plugins.dispatch.policies.company import Company
from plugins.dispatch.policies.identity import identity_of
from plugins.dispatch.policies.sessions import Sessions
from plugins.dispatch.policy import Choices, Facts
from plugins.dispatch.prompt import USUAL_TOKENS
from plugins.dispatch.worker import Worker

BLOCKS_A_SESSION = 10
"""Blocks that are kept, as a mean over all sessions."""

NAMED: Final = 1
LIKE: Final = 2
"""What other processes are told: that a worker has a conversation by its name, or one by its blocks."""


def _make_sessions(policy: "StickyConversation") -> Sessions:
    return Sessions(policy.max_sessions, policy.max_sessions * BLOCKS_A_SESSION)


@frozen
class StickyConversation:
    """Choose the worker that served the conversation before, else the one with the fewest prompt tokens on it.

    A request that names no conversation belongs to one if `match_threshold` of its prompt's blocks, each of
    `tokens_per_block`, are the beginning of what was seen of it; `hash_skip_count` tokens at the start do not count,
    as of a system prompt that all conversations share. Blocks are of text, or with `use_token_ids` of the token ids
    that the client sent. The last `max_sessions` conversations are remembered.
    """

    match_threshold: float = field(default=0.75, validator=[validators.gt(0), validators.le(1)])
    tokens_per_block: int = field(default=128, validator=[validators.ge(1), validators.le(65536)])
    use_token_ids: bool = False
    hash_skip_count: int = field(default=0, validator=[validators.ge(0), validators.le(1 << 20)])
    max_sessions: int = field(default=100_000, validator=validators.ge(1))
    _sessions: Sessions = field(init=False, default=Factory(_make_sessions, takes_self=True), eq=False, repr=False)
    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)
    _company: Company = field(init=False, factory=Company, eq=False, repr=False)

    @property
    def unit(self) -> int:
        """What a request usually weighs."""
        return USUAL_TOKENS

    def weigh(self, _worker: Worker, facts: Facts, /) -> int:
        """The tokens of the prompt."""
        return facts.prompt.tokens

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """The conversation's worker; another one if that takes no requests, or is not to be chosen this time."""
        company = self._company
        if company.choices is not None:
            company.choices.hear()
        identity = identity_of(facts.conversation)
        if identity is not None:
            session = self._sessions.named(hash(identity))
            if session is not None and candidates.roster.takes(session.worker):
                # one that is left out this time only goes on having the conversation
                return session.worker if session.worker in candidates else candidates.least(self._turn)
            worker = candidates.least(self._turn)
            session = self._sessions.name(hash(identity), worker)
            if company.choices is not None:
                session.since = company.choices.tell(worker, NAMED, (hash(identity),))
            return worker
        blocks = self._blocks(facts)
        if not blocks:
            return candidates.least(self._turn)
        session, known = self._sessions.like(blocks, self.match_threshold)
        if session is not None and candidates.roster.takes(session.worker):
            if company.choices is not None and known < len(blocks):
                company.choices.tell(session.worker, LIKE, blocks[known - 1 :])
            return session.worker if session.worker in candidates else candidates.least(self._turn)
        worker = candidates.least(self._turn)
        if session is not None:
            session.worker = worker
        else:
            session = self._sessions.begin(blocks, worker)
        if company.choices is not None:
            session.since = company.choices.tell(worker, LIKE, blocks)
        return worker

    def join(self, choices: Choices, /) -> None:
        """Tell other processes which worker has which conversation."""
        self._company.choices = choices

    def heard(self, worker: Worker, record: Record, /) -> None:
        """Know of a conversation what another process knows; who placed it last is right."""
        if record.kind == NAMED:
            for number in record.numbers:
                session = self._sessions.named(number) or self._sessions.name(number, worker)
                session.place(worker, record.since)
        elif record.kind == LIKE and record.numbers:
            session = self._sessions.continued(record.numbers) or self._sessions.begin(record.numbers, worker)
            session.place(worker, record.since)

    def left(self, worker: Worker, /) -> None:
        """Forget the conversations of a worker that is gone."""
        self._sessions.evict(worker)

    def _blocks(self, facts: Facts) -> Sequence[int]:
        return prompt_blocks(
            facts.prompt, self.tokens_per_block, skip=self.hash_skip_count, use_token_ids=self.use_token_ids
        )


POLICY = StickyConversation
