"""TensorRT-LLM's generation phase: fetch the KV blocks of a handoff, then go on from its first token."""

from collections.abc import Mapping
from typing import Final, cast

import aiohttp
from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call, Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.trtllm_answers import trtllm_extras

FETCH_PATH: Final = "/_stub/kv/fetch"
_NEEDED: Final = (
    *("ctx_request_id", "disagg_request_id", "first_gen_tokens", "encoded_opaque_state", "ctx_info_endpoint"),
)


@define(eq=False)
class GenerationPhase:
    """Answers generation requests with the blocks that a context worker holds."""

    engine: Engine
    session: aiohttp.ClientSession
    _running: set[int] = field(factory=set, init=False)

    async def run(self, call: Call, job: Job, params: Mapping[str, object]) -> None:
        """Answer a generation request."""
        number = self._admit(job, params)
        self._running.add(number)
        try:
            await self._fetch(job, params)
            await self.engine.answer(call, _continue(job, params), trtllm_extras(chat=job.chat))
        finally:
            self._running.discard(number)

    def _admit(self, job: Job, params: Mapping[str, object]) -> int:
        missing = [name for name in _NEEDED if not params.get(name)]
        if missing:
            raise self.engine.bad(f"a generation_only request needs {', '.join(missing)}")
        if params.get("schedule_style") == 1:
            raise self.engine.bad("this worker is not set up for generation-first requests")
        if len(job.prompts) != 1:
            raise self.engine.bad("a generation_only request takes exactly one prompt")
        if not str(params["ctx_info_endpoint"]).startswith("http://"):
            raise self.engine.bad("ctx_info_endpoint is not an address that this worker can reach")
        number = cast("int", params["disagg_request_id"])
        if number in self._running:
            raise self.engine.bad(f"disagg_request_id {number} is already in flight")
        return number

    async def _fetch(self, job: Job, params: Mapping[str, object]) -> None:
        """Take the blocks; a prompt that is not theirs is a client's fault, everything else is ours."""
        endpoint = str(params["ctx_info_endpoint"])
        wanted = {
            "ctx_request_id": params["ctx_request_id"],
            "encoded_opaque_state": params["encoded_opaque_state"],
            "prompt_token_ids": job.prompts[0],
        }
        try:
            async with self.session.post(endpoint + FETCH_PATH, json=wanted) as response:
                status = response.status
                answer = await response.text()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            status, answer = 0, f"{type(error).__name__}: {error}"
        if status == 409:
            raise self.engine.bad("the prompt is not the one whose KV cache was handed over")
        if status != 200:
            message = f"KV cache transfer from {endpoint} failed: {answer}"
            raise Rejection(500, self.engine.error(500, message))


def _continue(job: Job, params: Mapping[str, object]) -> Job:
    """Take over the first tokens, and the counts of the context phase if they came along."""
    used = cast("Mapping[str, object]", params.get("ctx_usage") or {})
    details = cast("Mapping[str, int]", used.get("prompt_tokens_details") or {})
    return evolve(
        job,
        first=tuple(cast("list[int]", params["first_gen_tokens"])),
        counted_prompt=cast("int | None", used.get("prompt_tokens")),
        cached_tokens=details.get("cached_tokens", 0),
    )
