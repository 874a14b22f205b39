"""A TensorRT-LLM worker: what it refuses, and which phase answers."""

from collections.abc import Mapping
from typing import Final, cast

import aiohttp
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.engines.answering import Answer, Phase
from plugins.dispatch.embedded.stub.engines.base import Handler
from plugins.dispatch.embedded.stub.engines.job import Job, read_job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt, read_prompts
from plugins.dispatch.embedded.stub.engines.trtllm_answers import trtllm_shape, unpack_token_ids
from plugins.dispatch.embedded.stub.engines.trtllm_auth import Signatures
from plugins.dispatch.embedded.stub.engines.trtllm_context import ContextPhase
from plugins.dispatch.embedded.stub.engines.trtllm_fields import TABLES
from plugins.dispatch.embedded.stub.engines.trtllm_generation import GenerationPhase
from plugins.dispatch.embedded.stub.engines.trtllm_metrics import Clock, Meter
from plugins.dispatch.embedded.stub.engines.trtllm_probes import TrtllmProbes
from plugins.dispatch.embedded.stub.engines.trtllm_rules import rule_problems
from plugins.dispatch.embedded.stub.engines.trtllm_side import FETCH_PATH, RECEIVE_PATH, ContextSide
from plugins.dispatch.embedded.stub.pairing import Pairing
from plugins.dispatch.embedded.stub.shapes.base import Shape

_NO_PARAMS: Final[Mapping[str, object]] = {}


@define(eq=False)
class TrtllmEngine(TrtllmProbes):
    """Serves one role of a disaggregated deployment, or whole requests in the role `both`."""

    context: ContextPhase = field(init=False)
    generation: GenerationPhase = field(init=False)
    signatures: Signatures = field(init=False)
    _meters: dict[Call, Meter] = field(factory=dict, init=False)

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those that the phases answer."""
        return {**super().handlers(), "POST /v1/responses": self.responses}

    async def start(self) -> None:
        """Set up the phases; to a context worker no connection is kept between two fetches."""
        await super().start()
        self.clock = Clock(self.settings.clock_skew)
        self.signatures = Signatures(self.settings.auth_key, self.settings.role)
        self.context = ContextPhase(self, Pairing(self.ledger.notify))
        self.generation = GenerationPhase(
            self, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )

    async def stop(self) -> None:
        """Close the way to context workers and forget what is held."""
        await super().stop()
        await self.generation.session.close()

    async def completions(self, call: Call) -> None:
        """Answer a completions request in the phase that it asks for."""
        await self._serve(call, apis.COMPLETIONS)

    async def chat(self, call: Call) -> None:
        """Answer a chat request in the phase that it asks for; the model's name is not looked at."""
        await self._serve(call, apis.CHAT)

    async def responses(self, call: Call) -> None:
        """Answer a Responses request in the phase that it asks for."""
        await self._serve(call, apis.RESPONSES)

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a generation worker that asks for what this worker holds."""
        if path not in (FETCH_PATH, RECEIVE_PATH) or self.settings.role != "context":
            return await super().side(request, path)
        return await ContextSide(self.context).answer(request, path)

    @property
    def waiting(self) -> int:
        """How many pairs wait for their other half."""
        return self.context.pairing.waiting

    def is_context(self, body: Mapping[str, object]) -> bool:
        """Whether a body is that of a context leg."""
        return _params(body).get("request_type") == "context_only"

    def leave(self, call: Call) -> None:
        """Fetch, and throw away, the blocks of a generation request whose client left before they were fetched."""
        self._meters.pop(call, None)
        params = _params(call.body)
        waits = params.get("request_type") == "generation_only" and self.settings.role == "generation"
        if waits and not call.settled and not call.cut and call.response is None:
            call.settled = True
            try:
                job = self._read(call.body, apis.PATHS[call.request.path])
            except (KeyError, ValueError):
                return
            self.run_errand(self.generation.release(job, params))

    def prepare(self, call: Call, job: Job, shape: Shape, phase: Phase | None = None) -> Answer:
        """Make the answer to a checked request, which tells its times if it is asked to."""
        answer = super().prepare(call, job, shape, phase)
        meter = self._meters.get(call)
        if meter is not None:
            meter.answer = answer
            answer.trailer = meter.trailer
        return answer

    async def _serve(self, call: Call, api: str) -> None:
        self._meters[call] = meter = Meter(call, self.clock)
        call.headers = meter.headers
        table = TABLES[api]
        problems = list(table.problems(call.body)) or list(rule_problems(call.body, api))
        if problems:
            raise self.invalid(*problems)
        if call.body.get("chat_template") is not None and not self.settings.allow_chat_template:
            raise self.bad("a chat_template in a request is not enabled on this server")
        try:
            job = self._read(call.body, api)
        except ValueError as error:
            raise self.bad(str(error)) from None
        conversation = call.body.get("conversation_params")
        if isinstance(conversation, dict) and conversation.get("subagent_affinity_id") is not None:
            self.ledger.violate("subagent_in_body", "the affinity of a sub-agent travels in headers only")
        await self._run(call, self.fit(job), meter)

    async def _run(self, call: Call, job: Job, meter: Meter) -> None:
        params = _params(call.body)
        problem = self.signatures.problem(call, params)
        if problem is not None:
            raise self.bad(problem)
        match self.settings.role, params.get("request_type"):
            case "context", "context_only":
                await self.context.run(call, job, params)
            case "generation", "generation_only":
                await self.generation.run(call, job, params, meter)
            case (("generation" | "both"), None):
                job = self.admit(job)
                await self.prepare(call, job, trtllm_shape(job, self.settings.model)).send()
            case role, asked:
                raise self.bad(f"a worker of the role {role} does not serve requests of the type {asked}")

    def _read(self, body: Mapping[str, object], api: str) -> Job:
        given = None if api == apis.COMPLETIONS else _given_prompt(body)
        return read_job(body, (given,) if given is not None else read_prompts(body, api), api)


def _params(body: Mapping[str, object]) -> Mapping[str, object]:
    params = body.get("disaggregated_params")
    return cast("Mapping[str, object]", params) if isinstance(params, dict) else _NO_PARAMS


def _given_prompt(body: Mapping[str, object]) -> Prompt | None:
    """Take the token ids that a context worker has made, in either form."""
    tokens = body.get("prompt_token_ids")
    packed = body.get("prompt_token_ids_b64")
    if tokens is None and packed:
        tokens = unpack_token_ids(str(packed))
    if tokens is None:
        return None
    if not tokens:
        raise ValueError("prompt_token_ids must not be empty")
    return tuple(cast("list[int]", tokens))
