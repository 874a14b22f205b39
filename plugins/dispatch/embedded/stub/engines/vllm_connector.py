"""What a vLLM worker's KV connector does for a request, and the phase that asks it to."""

import asyncio
from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from attrs import define, evolve, field, frozen

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Death, Rejection
from plugins.dispatch.embedded.stub.engines.answering import Phase
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.vllm_metrics import count_answer, count_prompt
from plugins.dispatch.embedded.stub.peer import PeerError, ask_peer
from plugins.dispatch.embedded.stub.shapes.base import Choice

if TYPE_CHECKING:
    from plugins.dispatch.embedded.stub.engines.vllm import VllmEngine

Params = Mapping[str, Any]

NOWHERE = "remote_prefill_from_nowhere"


class LoadError(Exception):
    """The KV blocks of another worker could not be loaded."""


@frozen
class Loaded:
    """What a connector has brought: so many tokens of the prompt, and for which choices they are the wrong ones."""

    tokens: int = 0
    spoiled: frozenset[int] = frozenset()
    declined: str | None = None
    tail: Mapping[str, object] = field(factory=dict)


@define(eq=False)
class Connector(ABC):
    """Does nothing; subclasses move KV blocks."""

    engine: "VllmEngine"
    session: aiohttp.ClientSession

    transfers: bool = field(default=False, init=False)
    """Whether blocks come straight from another worker."""

    async def load(self, call: Call, job: Job) -> Loaded:
        """Bring what there is of the prompt; raises `LoadError` or `Death`."""
        del call, job
        return Loaded()

    def save(self, call: Call, job: Job, choices: list[Choice], id: str) -> object:
        """Keep the blocks of a request for others, and give the handoff that its answer carries."""
        del call, job, choices, id
        return None

    def lose(self, call: Call) -> None:
        """Take note that the answer of a request was broken by the end of the worker."""
        del call

    def leave(self, call: Call) -> None:
        """Take note that a request has ended, in whatever way."""
        del call

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer another worker."""
        del request
        raise Rejection(404, {"detail": f"no {path} here"})

    def die(self, why: str) -> Death:
        """Make the end of a worker that was told to load blocks without being told from where."""
        self.engine.ledger.violate(NOWHERE, why)
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        return Death(Rejection(500, self.engine.error(500, message)))

    async def ask(self, url: str, wanted: Mapping[str, object] | None, seconds: float) -> Params:
        """Ask another worker; raises `LoadError` if it is not there, declines or does not answer."""
        try:
            return await ask_peer(self.session, url, wanted, seconds)
        except (PeerError, TimeoutError) as error:
            raise LoadError(str(error)) from None


@define(eq=False)
class VllmPhase(Phase):
    """One request's way through a worker: its prompt's blocks come from somewhere, and go somewhere."""

    engine: "VllmEngine"
    connector: Connector
    call: Call
    id: str

    async def begin(self, job: Job) -> Job:
        """Load what other workers have of the prompt, and count where all of it came from."""
        settings = self.engine.settings
        try:
            loaded = await self.connector.load(self.call, job)
        except LoadError:
            await asyncio.sleep(settings.failure_seconds)
            if settings.load_failure == "fail":
                raise Rejection(500, self.engine.error(500, "Internal server error")) from None
            loaded = Loaded()
        admitted = self.engine.admit(job)
        external = max(loaded.tokens - admitted.cached_tokens, 0)
        count_prompt(
            self.engine.metrics,
            job,
            cached=admitted.cached_tokens,
            external=external,
            transferred=self.connector.transfers,
        )
        seen = external if not self.connector.transfers or self.engine.version < (0, 32) else 0
        return evolve(
            admitted,
            cached_tokens=admitted.cached_tokens + seen,
            created_tokens=0 if external else admitted.created_tokens,
            spoiled=loaded.spoiled,
            declined=loaded.declined,
            tail=loaded.tail,
        )

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Keep the blocks for others, and give the handoff if there is one to be told."""
        count_answer(self.engine.metrics, choices)
        handoff = self.connector.save(self.call, job, choices, self.id)
        return {} if handoff is None else {"kv_transfer_params": handoff}

    def lose(self) -> None:
        """Take note that the answer did not reach the client."""
        if self.call.cut:
            self.connector.lose(self.call)
