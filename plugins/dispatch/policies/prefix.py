"""The worker that probably has the beginning of the prompt in its cache, unless it has too much to do."""

from typing import ClassVar

from attrs import Factory, field, frozen, validators

from plugins.board import Record
from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policies.blocks import prompt_blocks
from plugins.dispatch.policies.company import Company
from plugins.dispatch.policies.prefix_index import PrefixIndex, groups_of
from plugins.dispatch.policies.scores import best
from plugins.dispatch.policy import Choices, Facts, Match
from plugins.dispatch.worker import Worker


@frozen
class Prefix:
    """Choose the worker that was sent most of the prompt before, less `load_weight` blocks for each request on it.

    Nothing is asked of workers: what they were sent is taken for what they have. A worker is chosen for its cache
    only as long as it has no more than `load_factor` times the mean load and `slack` requests, so that a prompt
    that everybody sends does not drown the one worker that had it first; and a worker that is new is sent what no
    other one has, until it is as loaded as they are. Blocks have `tokens_per_block` tokens, where the client sent
    token ids, or the characters of as many; the last `max_blocks` blocks are remembered.
    """

    tells_match: ClassVar[bool] = True

    tokens_per_block: int = field(default=128, validator=[validators.ge(1), validators.le(65536)])
    load_weight: float = field(default=1.0, validator=[validators.ge(0), validators.le(1e6)])
    load_factor: float = field(default=1.5, validator=[validators.ge(1), validators.le(1e6)])
    slack: int = field(default=2, validator=validators.ge(0))
    max_blocks: int = field(default=200_000, validator=validators.ge(1024))
    _index: PrefixIndex = field(
        init=False,
        default=Factory(lambda policy: PrefixIndex(policy.max_blocks), takes_self=True),
        eq=False,
        repr=False,
    )
    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)
    _company: Company = field(init=False, factory=Company, eq=False, repr=False)

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """The worker with the best of cache and load."""
        choices = self._company.choices
        if choices is not None:
            choices.hear()
        prompt = facts.prompt
        blocks = prompt_blocks(prompt, self.tokens_per_block)
        if not blocks:
            facts.match = Match(0, prompt.tokens)
            return candidates.least(self._turn)
        path = self._index.follow(blocks)
        found = groups_of(path, self._allowed(candidates)) if path else ()
        worker, depth = best(candidates, found, self.load_weight, self._turn)
        self._index.add(blocks, path, worker.index)
        if choices is not None and depth < len(blocks):
            choices.tell(worker, 0, blocks[round(depth) :])
        cached = round(depth) * self.tokens_per_block
        facts.match = Match(cached, max(cached, prompt.tokens))
        return worker

    def join(self, choices: Choices, /) -> None:
        """Tell other processes which worker was sent what it did not have."""
        self._company.choices = choices

    def heard(self, worker: Worker, record: Record, /) -> None:
        """Note what another process has sent a worker."""
        self._index.add(record.numbers, self._index.follow(record.numbers), worker.index)

    def left(self, worker: Worker, /) -> None:
        """Forget what a worker had that is gone."""
        self._index.evict(worker.index)

    def _allowed(self, candidates: Candidates) -> int:
        """Those that may be chosen for their cache."""
        roster = candidates.roster
        mean = (roster.total + 1) / roster.shares.total
        return candidates.mask & roster.levels.up_to(self.load_factor * mean + self.slack)


POLICY = Prefix
