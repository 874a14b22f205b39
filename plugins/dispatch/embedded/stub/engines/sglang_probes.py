"""What an SGLang worker decodes, how its errors look, and what it tells of itself."""

import hmac
from collections.abc import Mapping
from typing import Any, Final

import orjson
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine, Handler
from plugins.dispatch.embedded.stub.engines.prompts import read_prompts
from plugins.dispatch.embedded.stub.engines.sglang_rooms import DEFAULT_PORT
from plugins.dispatch.embedded.stub.fields import Problem, report
from plugins.dispatch.embedded.stub.metrics import CONTENT_TYPE, Family, Metrics
from plugins.dispatch.embedded.stub.shapes.messages import anthropic_error
from plugins.dispatch.embedded.stub.wire import is_json_type

_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}
_MODES: Final = {"context": "prefill", "generation": "decode", "both": "null"}
_FAMILIES: Final = (
    Family("sglang:num_running_reqs", "gauge"),
    Family("sglang:realtime_tokens_total", label="mode", values=("prefill_compute", "prefill_cache", "decode")),
    Family("sglang:num_aborted_requests_total"),
)
_WHERE: Final = '\n\n  File "/srv/stub/entrypoints/http_server.py", line 1, in serve\n    POST '


@define(eq=False)
class SglangProbes(Engine):
    """The part of an SGLang worker that has nothing to do with answers."""

    metrics: Metrics = field(init=False)
    running: dict[str, Call] = field(factory=dict, init=False)

    async def start(self) -> None:
        """Count from zero."""
        await super().start()
        self.metrics = Metrics(_FAMILIES, {"model_name": self.settings.model})

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those that describe the worker; there is no version."""
        handlers = {
            **super().handlers(),
            "GET /": self.tell_running,
            "HEAD /": self.health,
            "GET /ping": self.health,
            "GET /health_generate": self.health,
            "GET /metrics": self.show_metrics,
            "GET /server_info": self.server_info,
            "GET /get_server_info": self.server_info,
            "POST /tokenize": self.tokenize,
            "POST /v1/messages/count_tokens": self.count_tokens,
            "POST /abort_request": self.abort_request,
        }
        del handlers["GET /version"]
        return handlers

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

    def error(self, status: int, message: str) -> dict[str, object]:
        """Make an error body in the engine's flat shape."""
        kind = _TYPES.get(status, "InternalServerError")
        return {"object": "error", "message": message, "type": kind, "param": None, "code": status}

    def dress(self, path: str, body: object) -> object:
        """Put errors into the envelope of their API."""
        if not isinstance(body, dict) or body.get("object") != "error":
            return body
        if path == "/v1/messages":
            kind = "invalid_request_error" if body["type"] == "Bad Request" else str(body["type"])
            return anthropic_error(kind, str(body["message"]).partition("\n\n")[0])
        if path == "/v1/responses":
            kind = "invalid_request_error" if body["type"] == "BadRequestError" else body["type"]
            return {"error": {"message": body["message"], "type": kind, "param": None, "code": body["code"]}}
        return body

    def schema(self, *problems: Problem) -> Rejection:
        """Make the rejection of a body that does not fit its table; such errors tell where in the engine they arose."""
        message = report(list(problems)) + _WHERE + str([problem.show() for problem in problems])
        return Rejection(400, {**self.error(400, message), "type": "Bad Request"})

    def stream_error(self, message: str) -> object:
        """Make the payload of an error event."""
        return self.error(500, message)

    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""
        limit = self.settings.context_tokens
        return self.bad(f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens).")

    async def tell_running(self, call: Call) -> None:
        """Answer what this is."""
        await call.send_json("SGLang is running")

    async def models(self, call: Call) -> None:
        """Answer the list of models with the length that each can take."""
        card = {"id": self.settings.model, "object": "model", "created": self.started, "owned_by": "sglang"}
        limit = {"root": self.settings.model, "parent": None, "max_model_len": self.settings.context_tokens}
        await call.send_json({"object": "list", "data": [{**card, **limit}]})

    async def server_info(self, call: Call) -> None:
        """Answer how the worker was started."""
        side = self.place.port if self.settings.side_on_api_port else self.place.side_port
        info = {
            "served_model_name": self.settings.model,
            "context_length": self.settings.context_tokens,
            "page_size": self.settings.tokens_per_block,
            "disaggregation_mode": _MODES[self.settings.role],
            "disaggregation_bootstrap_port": side or self.settings.side_port or DEFAULT_PORT,
            "version": self.settings.engine_version or "0.5.23",
        }
        await call.send_json(info)

    async def show_metrics(self, call: Call) -> None:
        """Answer the counters."""
        gauges = {"sglang:num_running_reqs": len(self.running)}
        await call.send_bytes(self.metrics.show(gauges), 200, {"Content-Type": CONTENT_TYPE})

    async def tokenize(self, call: Call) -> None:
        """Answer the token ids of a prompt or of a chat."""
        tokens = self._prompt(call, "chat" if "messages" in call.body else "completions")
        limit = self.settings.context_tokens
        await call.send_json({"tokens": tokens, "count": len(tokens), "max_model_len": limit})

    async def count_tokens(self, call: Call) -> None:
        """Answer how many tokens the prompt of a messages request has."""
        await call.send_json({"input_tokens": len(self._prompt(call, "messages"))})

    async def abort_request(self, call: Call) -> None:
        """Stop the requests of an id, or all of them; with an admin key only for those who have it."""
        key = self.settings.admin_key
        given = call.received.header("Authorization") or ""
        if key and not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
            raise Rejection(401, {"error": "Unauthorized"})
        rid = call.body.get("rid")
        everything = call.body.get("abort_all") is True
        for known, running in list(self.running.items()):
            if everything or (isinstance(rid, str) and rid and known.startswith(rid)):
                self.ledger.aborts += 1
                self.metrics.add("sglang:num_aborted_requests_total")
                running.stop()
        await call.send_bytes(b"", 200, {})

    def _prompt(self, call: Call, api: str) -> tuple[Any, ...]:
        try:
            return read_prompts(call.body, api)[0]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self.bad("there is no prompt") from None
