"""What a vLLM worker decodes, how its errors look, and what it tells of itself."""

from collections.abc import Mapping
from typing import Final

import orjson
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine, Handler
from plugins.dispatch.embedded.stub.engines.prompts import read_prompts
from plugins.dispatch.embedded.stub.engines.vllm_metrics import vllm_metrics
from plugins.dispatch.embedded.stub.engines.vllm_params import NEWEST, Version
from plugins.dispatch.embedded.stub.fields import Problem, report
from plugins.dispatch.embedded.stub.metrics import CONTENT_TYPE, Metrics
from plugins.dispatch.embedded.stub.shapes.messages import anthropic_error
from plugins.dispatch.embedded.stub.wire import is_json_type

SCHEMA: Final = "Bad Request"
_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}


@define(eq=False)
class VllmProbes(Engine):
    """The part of a vLLM worker that has nothing to do with answers."""

    metrics: Metrics = field(init=False, factory=lambda: vllm_metrics(""))
    version: Version = field(init=False, default=NEWEST)
    running: int = field(default=0, init=False)

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those that describe the worker."""
        return {
            **super().handlers(),
            "GET /ping": self.health,
            "GET /version": self.show_version,
            "GET /load": self.load,
            "GET /metrics": self.show_metrics,
            "POST /tokenize": self.tokenize,
            "POST /v1/messages/count_tokens": self.count_tokens,
        }

    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode a JSON object; the msgpack header means nothing here."""
        del wire
        if not is_json_type(content_type):
            raise self.schema(Problem("unsupported", ("body",), "Only application/json is accepted", content_type))
        if not raw:
            raise self.schema(Problem("missing", ("body",), "Field required"))
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise self.schema(Problem("json_invalid", ("body", error.pos), "JSON decode error", {})) from None
        if not isinstance(body, dict):
            words = "Input should be a valid dictionary or object to extract fields from"
            raise self.schema(Problem("model_attributes_type", ("body",), words, body))
        return body

    def error(self, status: int, message: str, param: str | None = None) -> object:
        """Make an error body in OpenAI's envelope."""
        kind = _TYPES.get(status, "InternalServerError")
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}

    def dress(self, path: str, body: object) -> object:
        """Put errors of the messages API into Anthropic's envelope, but for those of the schema."""
        if path == "/v1/messages" and isinstance(body, dict) and isinstance(body.get("error"), dict):
            error = body["error"]
            if error.get("type") != SCHEMA:
                return anthropic_error(error["type"], error["message"])
        return body

    def schema(self, *problems: Problem) -> Rejection:
        """Make the rejection of a body that does not fit its table; such errors have a type of their own."""
        message = report(list(problems), dotted=True)
        error = {"message": message, "type": SCHEMA, "param": problems[0].path, "code": 400}
        return Rejection(400, {"error": error})

    def stream_error(self, message: str) -> object:
        """Make the payload of an error event, which has the same envelope."""
        return self.error(500, message)

    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""
        limit = self.settings.context_tokens
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {tokens} "
            f"input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            f"input prompt. (parameter=input_tokens, value={tokens})"
        )
        return Rejection(400, self.error(400, message, "input_tokens"))

    def check_names(self, body: Mapping[str, object]) -> None:
        """Raise `Rejection` for a model that is not served, or an earlier response that is not kept."""
        model, earlier = body.get("model"), body.get("previous_response_id")
        if model is not None and model != self.settings.model:
            message = f"The model `{model}` does not exist. Valid aliases: {self.settings.model}."
            raise Rejection(404, self.error(404, message, "model"))
        if earlier is not None:
            words = {"message": f"Response with id '{earlier}' not found.", "type": "invalid_request_error"}
            raise Rejection(404, {"error": {**words, "param": "response_id", "code": 404}})

    async def models(self, call: Call) -> None:
        """Answer the list of models with the length that each can take."""
        card = {"id": self.settings.model, "object": "model", "created": self.started, "owned_by": "vllm"}
        limit = {"root": self.settings.model, "parent": None, "max_model_len": self.settings.context_tokens}
        await call.send_json({"object": "list", "data": [{**card, **limit, "permission": []}]})

    async def show_version(self, call: Call) -> None:
        """Answer the release that the worker behaves as."""
        await call.send_json({"version": ".".join(map(str, self.version))})

    async def load(self, call: Call) -> None:
        """Answer how many requests run."""
        await call.send_json({"server_load": self.running})

    async def show_metrics(self, call: Call) -> None:
        """Answer the counters."""
        gauges = {
            "vllm:num_requests_running": self.running,
            "vllm:nixl_num_kv_expired_reqs_total": self.handoffs.counts().expired,
        }
        await call.send_bytes(self.metrics.show(gauges), 200, {"Content-Type": CONTENT_TYPE})

    async def tokenize(self, call: Call) -> None:
        """Answer the token ids of a prompt or of a chat."""
        tokens = self._prompt(call, "chat" if "messages" in call.body else "completions")
        limit = self.settings.context_tokens
        await call.send_json({"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None})

    async def count_tokens(self, call: Call) -> None:
        """Answer how many tokens the prompt of a messages request has."""
        count = len(self._prompt(call, "messages"))
        await call.send_json({"input_tokens": count, "context_management": {"original_input_tokens": count}})

    def _prompt(self, call: Call, api: str) -> tuple[int, ...]:
        try:
            return read_prompts(call.body, api)[0]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self.bad("there is no prompt") from None
