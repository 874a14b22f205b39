"""TensorRT-LLM's context phase: one token, and KV blocks held for the generation worker."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from itertools import count
from secrets import token_bytes

from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.answering import Phase
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.trtllm_answers import tell_handoff, trtllm_shape
from plugins.dispatch.embedded.stub.fields import is_integer
from plugins.dispatch.embedded.stub.handoffs import DROPPED, Handoff
from plugins.dispatch.embedded.stub.pairing import Pair, Pairing
from plugins.dispatch.embedded.stub.shapes.base import Choice, Shape

_UNUSED = ("first_gen_log_probs", "first_gen_logits", "draft_tokens", "ctx_usage")
# Above what a double holds exactly, so that an id that went through one no longer matches.
_FIRST_ID = (1 << 53) + 1

GENERATION_FIRST = 1


@define(eq=False)
class ContextPhase:
    """Answers context requests and holds their blocks until they are fetched."""

    engine: Engine
    pairing: Pairing
    ids: "count[int]" = field(factory=lambda: count(_FIRST_ID, 2), init=False)
    _running: set[int] = field(factory=set, init=False)

    async def run(self, call: Call, job: Job, params: Mapping[str, object]) -> None:
        """Answer a context request; its blocks are released if the answer cannot be sent."""
        number = self._admit(call.body, job, params)
        shape = trtllm_shape(job, self.engine.settings.model)
        packed = params.get("return_prompt_token_ids_b64") is True
        leg = _Leg(self, number, shape, lost=call.has_fault("no_handoff"), packed=packed)
        self._running.add(number)
        try:
            if params.get("schedule_style") != GENERATION_FIRST:
                await self.engine.prepare(call, evolve(job, limit=1), shape, leg).send()
                return
            with self.pairing.hold(number, job.prompts[0]) as leg.pair:
                await self.engine.prepare(call, evolve(job, limit=1), shape, leg).send()
        finally:
            self._running.discard(number)

    def _admit(self, body: Mapping[str, object], job: Job, params: Mapping[str, object]) -> int:
        number = params.get("disagg_request_id")
        if job.stream or body.get("stream_options") is not None:
            raise self.engine.bad("a context_only request must not be streamed")
        if not isinstance(number, int) or not is_integer(number) or number < 1:
            raise self.engine.bad("a context_only request needs a positive disagg_request_id")
        if len(job.prompts) != 1:
            raise self.engine.bad("a context_only request takes exactly one prompt")
        held = self.engine.handoffs.any(lambda handoff: isinstance(handoff.mark, Mark) and handoff.mark.id == number)
        if number in self._running or held:
            raise self.engine.bad(f"disagg_request_id {number} is already in flight")
        return number


@define
class Mark:
    """What a fetch must have right, and the id under which the request is known to the front end."""

    state: str
    id: int


@define(eq=False)
class _Leg(Phase):
    """One context request; with a `pair` it waits for the generation worker before it computes."""

    context: ContextPhase
    number: int
    shape: Shape
    lost: bool
    packed: bool
    pair: Pair | None = None
    _handoff: Handoff | None = field(default=None, init=False)

    async def begin(self, job: Job) -> Job:
        """Wait for the generation worker if it is to be first, and count what is cached."""
        engine = self.context.engine
        if self.pair is not None:
            try:
                async with asyncio.timeout(engine.settings.pair_seconds):
                    await self.pair.joined.wait()
            except TimeoutError:
                message = f"no generation worker asked for the KV cache of request {self.number}"
                raise Rejection(500, engine.error(500, message)) from None
        return engine.admit(job)

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Hold the blocks, or give them to the generation worker that waits for them, and tell how to get them."""
        prompt = job.prompts[0]
        pending = choices[0].finish_reason == "length"
        if self.pair is not None:
            if not self.lost:
                self.pair.give({"prompt": prompt, "cached": job.cached_tokens})
        elif pending and not self.lost:
            # Held before the answer leaves: the fetch may come before this task runs again.
            state = b64encode(b"\xfb\xff\xfe" + self.number.to_bytes(8) + token_bytes(21)).decode()
            mark = Mark(state, self.number)
            self._handoff = self.context.engine.handoffs.hold(next(self.context.ids), prompt, mark)
        described = None if self.lost else self._describe(choices[0])
        if pending:
            _end(choices, self.context.engine.settings.context_finish)
        return tell_handoff(self.shape, choices, prompt, described, packed=self.packed)

    def lose(self) -> None:
        """Release blocks that nobody knows of."""
        if self._handoff is not None:
            self.context.engine.handoffs.end(self._handoff, DROPPED)

    def _describe(self, choice: Choice) -> dict[str, object]:
        """Describe the handoff; an answer that ends here has one without the names of anything held."""
        engine, handoff = self.context.engine, self._handoff
        mark = handoff.mark if handoff and isinstance(handoff.mark, Mark) else None
        return {
            "request_type": "context_only",
            "first_gen_tokens": choice.tokens,
            "ctx_request_id": handoff.key if handoff else self.number if self.pair else None,
            "encoded_opaque_state": mark.state if mark else None,
            "disagg_request_id": self.number,
            "ctx_dp_rank": 0,
            "ctx_info_endpoint": engine.place.url if handoff or self.pair else None,
            "schedule_style": GENERATION_FIRST if self.pair else None,
            "return_prompt_token_ids_b64": False,
            "resolved_thinking": None,
            **dict.fromkeys(_UNUSED),
        }


def _end(choices: list[Choice], reason: str) -> None:
    for choice in choices:
        if choice.last is not None:
            choice.last = evolve(choice.last, finish_reason=reason)
