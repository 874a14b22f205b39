"""TensorRT-LLM: what both workers are sent, one after the other or both at once."""

import os
import re
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import orjson
import ormsgpack
from attrs import field, frozen, validators

from kernel import Rejection, Secret
from plugins.dispatch.apis import USUAL, Apis, check_apis
from plugins.dispatch.engine import Body, Handoff, Partner, Reading, Request
from plugins.dispatch.engines.trtllm_answers import CONCERN, METRICS_EVENT, read_context, strip_event, strip_internals
from plugins.dispatch.engines.trtllm_ids import NODES, mint
from plugins.dispatch.engines.trtllm_places import place_in
from plugins.dispatch.engines.trtllm_prompts import copy_fields, one_prompt
from plugins.dispatch.engines.trtllm_signing import check_signable, signed_headers
from plugins.dispatch.engines.trtllm_times import CLOCK_HEADER, METRICS_HEADERS, note_ids, read_event, read_headers
from plugins.dispatch.plan import SERIAL_RELAY, SIMULTANEOUS_PAIR, Plan
from plugins.dispatch.policy import Match
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, RESPONSES
from plugins.slots import LegTimes

_MSGPACK_HEADERS: Final = {"x-trtllm-msgpack": "1"}
_CONTEXT_FIRST: Final = 0
_GENERATION_FIRST: Final = 1
_DERIVED: Final = "injected_chat_template_kwargs"

_GENERATION_ONLY: Final = "TRTLLM_DISAGG_BENCHMARK_GEN_ONLY"
_PRESET: Final = {"request_type": "generation_only", "first_gen_tokens": [7], "ctx_request_id": 1}


_APIS: Final[Apis] = (*USUAL, "responses", "count_tokens")


@frozen
class TrtllmEngine:
    """The context worker answers with one token and a handoff, the generation worker goes on from it.

    `schedule`: `generation_first` sends both workers the request at once. `body`: the format that workers are sent;
    `msgpack` costs both sides less, and older workers do not know it. `gen_tokids_ctxbytes`: let chat token ids
    travel as base64. `gen_strip_message_history`: send the generation worker only the last message, as it has the
    token ids of all. `node_id`: 0 to 255, different for each frontend of a deployment; by default made from the
    machine's network address. `max_local_prefill_length`: a prompt of which the chosen generation worker has a part
    cached and not more than so many tokens to compute is served by it alone; its policy has to know that.
    `internal_request_auth_key`: the workers' own, with which requests are signed; sub-agents need it. `clock_header`:
    under which workers tell the time by their clocks. `injected_chat_template_kwargs`: tell workers which arguments of
    the chat template a client of another API did not give itself, since newer ones refuse an argument that their
    template does not read; older ones refuse the field. `apis`: what the workers answer; older ones hand over on
    completions and chat alone.
    """

    name: ClassVar[str] = "trtllm"
    concern: ClassVar["re.Pattern[bytes]"] = CONCERN

    schedule: Literal["context_first", "generation_first"] = "context_first"
    body_format: Literal["json", "msgpack"] = field(default="json", alias="body")
    gen_tokids_ctxbytes: bool = False
    gen_strip_message_history: bool = False
    node_id: int | None = field(default=None, validator=validators.optional([validators.ge(0), validators.lt(NODES)]))
    max_local_prefill_length: int | None = field(default=None, validator=validators.optional(validators.ge(0)))
    internal_request_auth_key: Secret | None = None
    clock_header: str = field(default=CLOCK_HEADER, validator=validators.matches_re(r"[A-Za-z0-9-]{1,64}"))
    injected_chat_template_kwargs: bool = False
    apis: Apis = field(default=_APIS, validator=check_apis)
    plan: Plan = field(init=False, eq=False, repr=False)
    conditional: bool = field(init=False, eq=False, repr=False)
    _node: int = field(init=False, eq=False, repr=False)
    _measured: bool = field(init=False, eq=False, repr=False)

    @plan.default
    def _choose_plan(self) -> Plan:
        return SERIAL_RELAY if self.schedule == "context_first" else SIMULTANEOUS_PAIR

    @conditional.default
    def _may_bypass(self) -> bool:
        return self.max_local_prefill_length is not None

    @_node.default
    def _find_node(self) -> int:
        return uuid.getnode() % NODES if self.node_id is None else self.node_id

    @_measured.default
    def _is_measured(self) -> bool:
        return os.environ.get(_GENERATION_ONLY) == "1"

    def bypass(self, match: Match, /) -> bool:
        """Whether the generation worker has enough of the prompt."""
        limit = self.max_local_prefill_length
        return limit is not None and match.cached > 0 and match.prompt - match.cached <= limit

    def check(self, request: Request, /) -> None:
        """Decline prompts that this engine's handoff cannot carry."""
        if request.endpoint is COMPLETIONS:
            one_prompt(request.payload.data.get("prompt"))
        if request.conversation is not None:
            check_signable(self.internal_request_auth_key, request.conversation)

    def alone(self, _request: Request, /) -> bool:
        """Whether generation workers are measured without a context phase."""
        return self._measured

    def question(self, partner: Partner, /) -> str:
        """Where a context worker tells how its KV cache is reached."""
        return f"{partner.url}/server_info"

    def meet(self, request: Request, partner: Partner, /) -> Handoff:
        """One id for both legs, and where the generation worker finds the context worker.

        Raises:
            MalformedFault: 502, the context worker does not say where.
        """
        place, id = place_in(partner.told), mint(self._node)
        ids = {"ctx_request_id": id, "disagg_request_id": id, "ctx_usage": None}
        generation = {"request_type": "generation_only", "schedule_style": _GENERATION_FIRST, **ids, **place}
        context = self._context_params(id, _GENERATION_FIRST)
        handoff = Handoff({Role.CONTEXT: context, Role.GENERATION: generation})
        if request.performance is not None:
            note_ids(request.performance, handoff)
        return handoff

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """The client's fields, with those of the phase in place of any handoff fields that it sent."""
        data = copy_fields(request)
        if self.injected_chat_template_kwargs and request.payload.derived:
            data[_DERIVED] = list(request.payload.derived)
        if role is Role.CONTEXT:
            met = None if handoff is None else handoff.fields.get(Role.CONTEXT)
            data["disaggregated_params"] = met or self._context_params(mint(self._node), _CONTEXT_FIRST)
            data["stream"] = False
            if request.endpoint is RESPONSES:
                data.pop("stream_options", None)
            else:
                data["stream_options"] = None
        else:
            self._go_on(data, request, handoff)
        headers = {} if request.performance is None else METRICS_HEADERS
        if (key := self.internal_request_auth_key) is not None:
            headers = {**signed_headers(key, role, request, data.get("disaggregated_params") or {}), **headers}
        return self._encode(data, headers)

    def read(self, role: Role, request: Request, answer: bytes, _handoff: Handoff | None = None, /) -> Reading:
        """The handoff or the final answer of a context worker; a generation worker's answer for the client."""
        if role is Role.GENERATION:
            return strip_internals(answer)
        reading = read_context(answer, api=request.endpoint.name, unread=self.body_format == "json")
        if request.performance is not None and isinstance(reading, Handoff):
            note_ids(request.performance, reading)
        return reading

    def report(self, times: LegTimes, headers: Mapping[str, str], received: float, /) -> None:
        """Keep the times that a worker tells."""
        read_headers(times, headers, self.clock_header, received)

    def edit(self, request: Request, _handoff: Handoff | None, name: bytes, data: bytes, /) -> bytes | None:
        """An event of a stream with what the client may see; the worker's metrics, which come last, are not for it."""
        if name != METRICS_EVENT:
            return strip_event(data)
        read_event(request, data)
        return None

    def encode(self, data: Mapping[str, Any], /) -> Body:
        """What is asked of one worker alone, in the format that workers are sent."""
        return self._encode(data, {})

    def _go_on(self, data: dict[str, Any], request: Request, handoff: Handoff | None) -> None:
        """Turn the client's fields into those of the generation leg."""
        if handoff is None:
            data["disaggregated_params"] = None
            if self._measured:
                data.update(disaggregated_params=_PRESET, ignore_eos=True)
        elif self.plan.together:
            data["disaggregated_params"] = handoff.fields[Role.GENERATION]
        else:
            if request.endpoint is CHAT_COMPLETIONS and self.gen_strip_message_history:
                data["messages"] = data["messages"][-1:]
            data.update(handoff.fields)

    def _context_params(self, id: int, style: int) -> dict[str, object]:
        return {
            "request_type": "context_only",
            "disagg_request_id": id,
            "schedule_style": style,
            "return_prompt_token_ids_b64": self.gen_tokids_ctxbytes,
        }

    def _encode(self, data: Mapping[str, Any], headers: Mapping[str, str]) -> Body:
        try:
            if self.body_format == "msgpack":
                return Body(ormsgpack.packb(data), {**headers, **_MSGPACK_HEADERS})
            return Body(orjson.dumps(data), headers)
        except (orjson.JSONEncodeError, ormsgpack.MsgpackEncodeError) as error:
            raise Rejection(400, "the request body is nested too deeply", "invalid_body") from error


ENGINE = TrtllmEngine
