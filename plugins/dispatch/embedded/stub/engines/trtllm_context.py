"""TensorRT-LLM's context phase: one token, and KV blocks held for the generation worker."""

from collections.abc import Mapping
from typing import Final

import orjson
from aiohttp import web
from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.trtllm_answers import trtllm_extras
from plugins.dispatch.embedded.stub.fields import (
    INTEGER,
    STRING,
    TOKEN_IDS,
    Table,
    is_integer,
    report,
    required,
)
from plugins.dispatch.embedded.stub.handoffs import Handoff, HandoffError
from plugins.dispatch.embedded.stub.replies import Choice, ReplyShape

_FETCH: Final = Table(
    {
        **required(INTEGER, "ctx_request_id"),
        **required(STRING, "encoded_opaque_state"),
        **required(TOKEN_IDS, "prompt_token_ids"),
    }
)
_UNUSED: Final = ("first_gen_log_probs", "first_gen_logits", "draft_tokens", "schedule_style", "ctx_usage")


@define(eq=False)
class ContextPhase:
    """Answers context requests and holds their blocks until they are fetched."""

    engine: Engine
    _running: set[int] = field(factory=set, init=False)

    async def run(self, call: Call, job: Job, params: Mapping[str, object]) -> None:
        """Answer a context request; its blocks are released if the answer cannot be sent."""
        number = self._admit(call.body, job, params)
        self._running.add(number)
        try:
            await self._answer(call, job, number, packed=params.get("return_prompt_token_ids_b64") is True)
        finally:
            self._running.discard(number)

    async def answer_fetch(self, request: web.BaseRequest) -> web.Response:
        """Give the blocks of one handoff to the generation worker that names it."""
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            return web.json_response({"message": "the body is not JSON"}, status=400)
        problems = list(_FETCH.problems(body))
        if problems:
            return web.json_response({"message": report(problems)}, status=400)
        try:
            self.engine.handoffs.fetch(body["ctx_request_id"], body["encoded_opaque_state"], body["prompt_token_ids"])
        except HandoffError as error:
            return web.json_response({"message": str(error)}, status=error.status)
        return web.json_response({})

    def _admit(self, body: Mapping[str, object], job: Job, params: Mapping[str, object]) -> int:
        number = params.get("disagg_request_id")
        if job.stream or body.get("stream_options") is not None:
            raise self.engine.bad("a context_only request must not be streamed")
        if not isinstance(number, int) or not is_integer(number) or number < 1:
            raise self.engine.bad("a context_only request needs a positive disagg_request_id")
        if params.get("schedule_style") == 1:
            raise self.engine.bad("this worker is not set up for generation-first requests")
        if len(job.prompts) != 1:
            raise self.engine.bad("a context_only request takes exactly one prompt")
        if number in self._running or self.engine.handoffs.holds(number):
            raise self.engine.bad(f"disagg_request_id {number} is already in flight")
        return number

    async def _answer(self, call: Call, job: Job, number: int, *, packed: bool) -> None:
        prompt = job.prompts[0]
        choices = await self.engine.collect(call, evolve(job, limit=1))
        last = choices[0].last
        pending = last is not None and last.finish_reason == "length"
        lost = call.has_fault("no_handoff")
        # Held before the answer leaves: the fetch may come before this task runs again.
        handoff = self.engine.handoffs.hold(number, prompt) if pending and not lost else None
        shape = ReplyShape(
            job.chat, self.engine.settings.model, trtllm_extras(chat=job.chat, prompt=prompt, packed=packed)
        )
        described = None if lost else self._describe(choices[0], number, handoff)
        if pending:
            _finish(choices, self.engine.settings.context_finish)
        counted = job.usage(sum(choice.tokens for choice in choices))
        try:
            await call.send_json(shape.whole(choices, counted, {"disaggregated_params": described}))
        except BaseException:
            if handoff is not None:
                self.engine.handoffs.drop(handoff)
            raise

    def _describe(self, choice: Choice, number: int, handoff: Handoff | None) -> dict[str, object]:
        """Describe the handoff; an answer that ends here has one without the names of anything held."""
        return {
            "request_type": "context_only",
            "first_gen_tokens": [choice.last.token] if choice.last else [],
            "ctx_request_id": handoff.ctx_request_id if handoff else None,
            "encoded_opaque_state": handoff.opaque_state if handoff else None,
            "disagg_request_id": number,
            "ctx_dp_rank": 0,
            "ctx_info_endpoint": self.engine.url if handoff else None,
            "return_prompt_token_ids_b64": False,
            "resolved_thinking": None,
            **dict.fromkeys(_UNUSED),
        }


def _finish(choices: list[Choice], reason: str) -> None:
    for choice in choices:
        if choice.last is not None:
            choice.last = evolve(choice.last, finish_reason=reason)
