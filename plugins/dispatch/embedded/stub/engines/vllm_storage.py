"""vLLM's connectors to a store that all workers share: the prompt itself is the name of its blocks."""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.engines.vllm_connector import Connector, Loaded
from plugins.dispatch.embedded.stub.shapes.base import Choice


@define(eq=False)
class StorageConnector(Connector):
    """Finds full blocks in the store and puts its own there; `reporting` tells how many tokens it found."""

    reporting: bool = False
    _own: set[str] = field(factory=set, init=False)

    async def load(self, call: Call, job: Job) -> Loaded:
        """Find the prompts' blocks; with too few of them the request is declined if it asks for that."""
        found = sum(map(self._match, job.prompts))
        threshold = call.body.get("cache_hit_threshold")
        if isinstance(threshold, int | float) and found < threshold * job.tokens:
            return Loaded(declined="cache_threshold")
        tail = {"kv_transfer_params": {"num_lmcache_extra_cached_tokens": found}} if self.reporting and found else {}
        return Loaded(found, tail=tail)

    def save(self, call: Call, job: Job, choices: list[Choice], id: str) -> object:
        """Put the prompts' blocks into the store, which is the prefill workers' business."""
        del choices, id
        if self.engine.settings.role != "generation" and not call.has_fault("no_handoff"):
            for prompt in job.prompts:
                for name in self._names(prompt):
                    self._put(name)
        return None

    def _match(self, prompt: Prompt) -> int:
        """Count the tokens of a prompt that are in the store; the last one has to be computed in any case."""
        found = 0
        for name in self._names(prompt[:-1]):
            if not self._has(name):
                break
            found += self.engine.settings.tokens_per_block
        return found

    def _names(self, prompt: Prompt) -> Iterator[str]:
        size = self.engine.settings.tokens_per_block
        digest = blake2b(digest_size=16)
        for start in range(0, len(prompt) - size + 1, size):
            digest.update(array("q", prompt[start : start + size]).tobytes())
            yield digest.hexdigest()

    def _has(self, name: str) -> bool:
        folder = self.engine.settings.storage_path
        return (Path(folder) / name).exists() if folder else name in self._own

    def _put(self, name: str) -> None:
        folder = self.engine.settings.storage_path
        if folder:
            (Path(folder) / name).touch()
        else:
            self._own.add(name)
