"""TensorRT-LLM with the context phase first: what both workers of the relay are sent."""

import uuid
from typing import Any, ClassVar, Literal

import orjson
import ormsgpack
from attrs import field, frozen, validators

from kernel import Rejection
from plugins.dispatch.engine import Body, Handoff, Reading, Request
from plugins.dispatch.engines.trtllm_answers import read_context, strip_internals
from plugins.dispatch.engines.trtllm_ids import NODES, mint
from plugins.dispatch.plan import SERIAL_RELAY, Plan
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS

_MSGPACK_HEADERS = {"x-trtllm-msgpack": "1"}
_CONTEXT_FIRST = 0
_PROMPT_IDS = ("prompt_token_ids", "prompt_token_ids_b64")
"""Part of a handoff. From a client they would stand in for the messages, past the chat template and its guard."""


@frozen
class TrtllmEngine:
    """The context worker answers with one token and a handoff, the generation worker goes on from it.

    `body`: the format that workers are sent; `msgpack` costs both sides less, and older workers do not know
    it. `gen_tokids_ctxbytes`: let chat token ids travel as base64. `gen_strip_message_history`: send the
    generation worker only the last message, as it has the token ids of all. `node_id`: 0 to 255, different
    for each frontend of a deployment; by default made from the machine's network address.
    """

    name: ClassVar[str] = "trtllm"
    plan: ClassVar[Plan] = SERIAL_RELAY

    body_format: Literal["json", "msgpack"] = field(default="json", alias="body")
    gen_tokids_ctxbytes: bool = False
    gen_strip_message_history: bool = False
    node_id: int | None = field(default=None, validator=validators.optional([validators.ge(0), validators.lt(NODES)]))

    def check(self, request: Request, /) -> None:
        """Decline prompts that this engine's handoff cannot carry."""
        if request.endpoint is COMPLETIONS:
            _one_prompt(request.payload.data.get("prompt"))

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """The client's fields, with those of the phase in place of any handoff fields that it sent."""
        data = _copy(request)
        if role is Role.CONTEXT:
            data["disaggregated_params"] = self._context_params()
            data["stream"] = False
            data["stream_options"] = None
        else:
            if request.endpoint is CHAT_COMPLETIONS and self.gen_strip_message_history:
                data["messages"] = data["messages"][-1:]
            data.update(handoff.fields if handoff is not None else {"disaggregated_params": None})
        return self._encode(data)

    def read(self, role: Role, request: Request, answer: bytes, /) -> Reading:
        """The handoff or the final answer of a context worker; a generation worker's answer for the client."""
        if role is Role.CONTEXT:
            return read_context(answer, chat=request.endpoint is CHAT_COMPLETIONS)
        return strip_internals(answer)

    def _context_params(self) -> dict[str, object]:
        return {
            "request_type": "context_only",
            "disagg_request_id": mint(uuid.getnode() % NODES if self.node_id is None else self.node_id),
            "schedule_style": _CONTEXT_FIRST,
            "return_prompt_token_ids_b64": self.gen_tokids_ctxbytes,
        }

    def _encode(self, data: dict[str, Any]) -> Body:
        try:
            if self.body_format == "msgpack":
                return Body(ormsgpack.packb(data), _MSGPACK_HEADERS)
            return Body(orjson.dumps(data))
        except (orjson.JSONEncodeError, ormsgpack.MsgpackEncodeError) as error:
            raise Rejection(400, "the request body is nested too deeply", "invalid_body") from error


def _copy(request: Request) -> dict[str, Any]:
    """The client's fields for one leg, with a single prompt, and the conversation where one is known."""
    data = dict(request.payload.data)
    for name in _PROMPT_IDS:
        data.pop(name, None)
    if request.endpoint is COMPLETIONS:
        data["prompt"] = _one_prompt(data.get("prompt"))
    if request.conversation is not None:
        # the affinity of a sub-agent travels in signed headers, never in a body
        data["conversation_params"] = {"conversation_id": request.conversation.id}
    return data


def _one_prompt(prompt: object) -> object:
    """The prompt without a list round it; a handoff names one prompt."""
    match prompt:
        case str() | [str()]:
            return prompt if isinstance(prompt, str) else prompt[0]
        case [list(tokens)] if _are_tokens(tokens):
            return tokens
        case list() if _are_tokens(prompt):
            return prompt
        case [str() | list(), _, *_]:
            raise Rejection(400, "several prompts in one request are not supported by this model", param="prompt")
        case _:
            raise Rejection(400, "the prompt must be a string or a non-empty list of token ids", param="prompt")


def _are_tokens(value: list[object]) -> bool:
    return bool(value) and all(type(item) is int for item in value)


ENGINE = TrtllmEngine
