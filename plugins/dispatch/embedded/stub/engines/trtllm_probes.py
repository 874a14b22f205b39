"""What a TensorRT-LLM worker decodes, how its errors look, and what it tells of itself."""

import asyncio
from collections.abc import Mapping
from typing import Final

from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine, Handler
from plugins.dispatch.embedded.stub.engines.prompts import read_prompts
from plugins.dispatch.embedded.stub.engines.trtllm_events import HASH_ALGORITHM, CacheEvents
from plugins.dispatch.embedded.stub.engines.trtllm_fields import CHAT
from plugins.dispatch.embedded.stub.engines.trtllm_metrics import Clock
from plugins.dispatch.embedded.stub.fields import Problem, is_number, report
from plugins.dispatch.embedded.stub.wire import decode, is_json_type

_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}
_CLOCK_SECONDS: Final = 0.2


@define(eq=False)
class TrtllmProbes(Engine):
    """The part of a TensorRT-LLM worker that has nothing to do with phases."""

    clock: Clock = field(factory=Clock, init=False)
    events: CacheEvents = field(init=False)

    async def start(self) -> None:
        """Begin to watch the cache."""
        await super().start()
        self.events = CacheEvents(self.cache)

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those that describe the worker."""
        return {
            **super().handlers(),
            "POST /v1/messages/count_tokens": self.count_tokens,
            "GET /server_info": self.server_info,
            "POST /kv_cache_events": self.kv_cache_events,
            "GET /steady_clock_offset": self.tell_clock,
            "POST /steady_clock_offset": self.set_clock,
        }

    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode msgpack if the header announces it, else JSON; an empty body is an empty object."""
        if self.settings.require_msgpack and wire != "msgpack":
            raise self.bad("this worker takes msgpack bodies only")
        if raw and not is_json_type(content_type):
            # Without the JSON content type the framework hands the bytes over undecoded.
            raise self.invalid(Problem("model_attributes_type", ("body",), "Input should be a valid dictionary"))
        try:
            body = decode(raw, wire)
        except ValueError as error:
            if wire == "msgpack":
                raise Rejection(422, {"detail": f"malformed msgpack body: {error}"}) from None
            position = getattr(error, "pos", 0)
            raise self.invalid(Problem("json_invalid", ("body", position), "JSON decode error")) from None
        if not isinstance(body, dict):
            raise self.invalid(*CHAT.problems(body))
        return body

    def error(self, status: int, message: str, code: str | None = None) -> object:
        """Make an error body in the engine's flat shape."""
        return {
            "object": "error",
            "message": message,
            "type": _TYPES.get(status, "InternalServerError"),
            "param": None,
            "code": code or status,
        }

    def stream_error(self, message: str) -> object:
        """Make the payload of an error event, which unlike other errors has OpenAI's envelope."""
        return {"error": {"message": message, "type": "server_error", "code": None, "param": None}}

    def invalid(self, *problems: Problem) -> Rejection:
        """Make the rejection of a body that does not fit its table."""
        return Rejection(400, {"error": report(list(problems))})

    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""
        limit = self.settings.context_tokens
        message = (
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages."
        )
        return Rejection(400, self.error(400, message, "context_length_exceeded"))

    async def models(self, call: Call) -> None:
        """Answer the list of models."""
        card = {
            "id": self.settings.model,
            "object": "model",
            "created": self.started,
            "owned_by": "tensorrt_llm",
        }
        await call.send_json({"object": "list", "data": [card]})

    async def server_info(self, call: Call) -> None:
        """Answer what a router needs to know of the worker."""
        params = {"ctx_info_endpoint": [self.place.url]} if self.settings.role == "context" else {}
        info = {
            "disaggregated_params": params,
            "tokens_per_block": self.settings.tokens_per_block,
            "kv_cache_hash_algo": HASH_ALGORITHM,
            "render_fingerprint": "stub-1",
        }
        await call.send_json(info)

    async def kv_cache_events(self, call: Call) -> None:
        """Answer what has happened to the cache since the last time."""
        await call.send_json(self.events.take())

    async def tell_clock(self, call: Call) -> None:
        """Answer when this request came and when its answer leaves, on the worker's clock; or set the clock."""
        received = self.clock.now()
        await asyncio.sleep(_CLOCK_SECONDS)
        await call.send_json({"receive_ts": received, "transmit_ts": self.clock.now()})

    async def set_clock(self, call: Call) -> None:
        """Set the worker's clock to the front end's."""
        offset = call.body.get("offset")
        if not isinstance(offset, int | float) or not is_number(offset):
            raise self.bad("offset must be a number")
        self.clock.offset = float(offset)
        await call.send_json({})

    async def count_tokens(self, call: Call) -> None:
        """Answer how many tokens the prompt of a messages request has."""
        try:
            (prompt,) = read_prompts(call.body, "messages")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.bad("messages must be a list of messages") from None
        await call.send_json({"input_tokens": len(prompt)})
