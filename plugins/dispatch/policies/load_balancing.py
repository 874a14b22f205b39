"""`least_loaded` under the name and with the argument that it has in TensorRT-LLM's frontend."""

from attrs import field, frozen

from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policy import Facts
from plugins.dispatch.prompt import USUAL_TOKENS
from plugins.dispatch.worker import Worker


@frozen
class LoadBalancing:
    """Choose the worker with the fewest requests, or with `use_tokens` with the fewest tokens in prompts.

    Unlike in TensorRT-LLM, tokens can be counted for every kind of request.
    """

    use_tokens: bool = False
    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)

    @property
    def unit(self) -> int:
        """What a request usually weighs."""
        return USUAL_TOKENS if self.use_tokens else 1

    def weigh(self, _worker: Worker, facts: Facts, /) -> int:
        """One, or the tokens of the prompt."""
        return facts.prompt.tokens if self.use_tokens else 1

    def choose(self, candidates: Candidates, _facts: Facts, /) -> Worker:
        """The least loaded worker; of several, the one behind the last choice."""
        return candidates.least(self._turn)


POLICY = LoadBalancing
