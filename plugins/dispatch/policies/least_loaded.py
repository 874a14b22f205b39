"""The worker with the least work."""

from typing import Literal

from attrs import field, frozen

from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policy import Facts
from plugins.dispatch.prompt import USUAL_TOKENS
from plugins.dispatch.worker import Worker


@frozen
class LeastLoaded:
    """Choose the worker with the least load for its weight; among equals, each in turn.

    `load`: count a worker's requests, or the tokens of their prompts, which are estimated from a text's length.
    """

    load: Literal["requests", "tokens"] = "requests"
    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)

    @property
    def unit(self) -> int:
        """What a request usually weighs."""
        return 1 if self.load == "requests" else USUAL_TOKENS

    def weigh(self, _worker: Worker, facts: Facts, /) -> int:
        """One, or the tokens of the prompt."""
        return 1 if self.load == "requests" else facts.prompt.tokens

    def choose(self, candidates: Candidates, _facts: Facts, /) -> Worker:
        """The least loaded worker; of several, the one behind the last choice."""
        return candidates.least(self._turn)


POLICY = LeastLoaded
