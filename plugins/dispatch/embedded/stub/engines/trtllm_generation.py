"""TensorRT-LLM's generation phase: get the KV blocks of a handoff, then go on from its first token."""

import time
from collections.abc import Mapping
from typing import Any, Final, cast

import aiohttp
import orjson
from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.trtllm_answers import trtllm_shape
from plugins.dispatch.embedded.stub.engines.trtllm_context import GENERATION_FIRST
from plugins.dispatch.embedded.stub.engines.trtllm_metrics import Meter
from plugins.dispatch.embedded.stub.engines.trtllm_side import FETCH_PATH, RECEIVE_PATH

Params = Mapping[str, object]

_NEEDED: Final = (
    *("ctx_request_id", "disagg_request_id", "first_gen_tokens", "encoded_opaque_state", "ctx_info_endpoint"),
)
_NEEDED_FIRST: Final = ("ctx_request_id", "disagg_request_id", "ctx_info_endpoint")
_VIOLATIONS: Final = {
    "fetched": "handoff_used_twice",
    "expired": "handoff_expired",
    "prompt": "handoff_prompt_differs",
    "state": "handoff_changed",
}


@define(eq=False)
class GenerationPhase:
    """Answers generation requests with the blocks that a context worker holds or will give."""

    engine: Engine
    session: aiohttp.ClientSession
    _running: set[int] = field(factory=set, init=False)

    async def run(self, call: Call, job: Job, params: Params, meter: Meter) -> None:
        """Answer a generation request."""
        number = self._admit(job, params)
        self._running.add(number)
        try:
            began = time.monotonic()
            job = await self._load(call, job, params)
            meter.loaded = time.monotonic() - began
            self.engine.cache.keep(job.prompts[0])
            await self.engine.prepare(call, job, trtllm_shape(job, self.engine.settings.model)).send()
        finally:
            self._running.discard(number)

    async def release(self, job: Job, params: Params) -> None:
        """Fetch blocks for a request that has ended before it could, so that they do not wait in vain."""
        if not any(params.get(name) is None for name in _NEEDED):
            await self._ask(FETCH_PATH, params, self._fetch_body(job, params))

    def _admit(self, job: Job, params: Params) -> int:
        first = params.get("schedule_style") == GENERATION_FIRST
        missing = [name for name in (_NEEDED_FIRST if first else _NEEDED) if not params.get(name)]
        if missing:
            raise self.engine.bad(f"a generation_only request needs {', '.join(missing)}")
        if first and params["ctx_request_id"] != params["disagg_request_id"]:
            raise self.engine.bad("a generation-first request has one id for both phases")
        if len(job.prompts) != 1:
            raise self.engine.bad("a generation_only request takes exactly one prompt")
        if not str(params["ctx_info_endpoint"]).startswith("http://"):
            raise self.engine.bad("ctx_info_endpoint is not an address that this worker can reach")
        number = cast("int", params["disagg_request_id"])
        if number in self._running:
            raise self.engine.bad(f"disagg_request_id {number} is already in flight")
        return number

    async def _load(self, call: Call, job: Job, params: Params) -> Job:
        """Get the blocks; a prompt that is not theirs is a client's fault, everything else is ours."""
        if params.get("schedule_style") == GENERATION_FIRST:
            wanted = {"disagg_request_id": params["disagg_request_id"], "prompt_token_ids": job.prompts[0]}
            status, answer = await self._ask(RECEIVE_PATH, params, wanted)
            self._judge(status, answer, params)
            return evolve(job, cached_tokens=answer["cached"])
        status, answer = await self._ask(FETCH_PATH, params, self._fetch_body(job, params))
        call.settled = True
        self._judge(status, answer, params)
        return _continue(job, params)

    def _fetch_body(self, job: Job, params: Params) -> dict[str, object]:
        return {
            "ctx_request_id": params["ctx_request_id"],
            "encoded_opaque_state": params["encoded_opaque_state"],
            "prompt_token_ids": job.prompts[0],
        }

    async def _ask(self, path: str, params: Params, wanted: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        settings = self.engine.settings
        seconds = settings.pair_seconds if path == RECEIVE_PATH else settings.fetch_seconds
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            url = f"{params['ctx_info_endpoint']}{path}"
            async with self.session.post(url, json=wanted, timeout=timeout) as response:
                answer = orjson.loads(await response.read())
                return response.status, answer if isinstance(answer, dict) else {}
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return 0, {"message": f"{type(error).__name__}: {error}"}

    def _judge(self, status: int, answer: Params, params: Params) -> None:
        kind = _VIOLATIONS.get(str(answer.get("what")))
        if kind is not None:
            self.engine.ledger.violate(kind, f"disagg_request_id {params['disagg_request_id']}")
        if status == 409:
            raise self.engine.bad("the prompt is not the one whose KV cache was handed over")
        if status != 200:
            message = f"KV cache transfer from {params['ctx_info_endpoint']} failed: {answer.get('message')}"
            raise Rejection(500, self.engine.error(500, message))


def _continue(job: Job, params: Params) -> Job:
    """Take over the first tokens, and the counts of the context phase if they came along."""
    used = cast("Mapping[str, object]", params.get("ctx_usage") or {})
    details = cast("Mapping[str, int]", used.get("prompt_tokens_details") or {})
    return evolve(
        job,
        first=tuple(cast("list[int]", params["first_gen_tokens"])),
        counted_prompt=cast("int | None", used.get("prompt_tokens")),
        cached_tokens=details.get("cached_tokens", 0),
    )
