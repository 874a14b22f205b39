"""A TensorRT-LLM worker: what it decodes, what it refuses, and which phase answers."""

from collections.abc import Mapping
from typing import Final, cast

import aiohttp
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call, Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine, Handler
from plugins.dispatch.embedded.stub.engines.job import Job, Prompt, read_job, read_messages, read_prompts
from plugins.dispatch.embedded.stub.engines.trtllm_answers import trtllm_extras, unpack_token_ids
from plugins.dispatch.embedded.stub.engines.trtllm_context import ContextPhase
from plugins.dispatch.embedded.stub.engines.trtllm_fields import CHAT, COMPLETIONS, rule_problems
from plugins.dispatch.embedded.stub.engines.trtllm_generation import FETCH_PATH, GenerationPhase
from plugins.dispatch.embedded.stub.fields import Problem, report
from plugins.dispatch.embedded.stub.wire import decode, is_json_type

_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}


@define(eq=False)
class TrtllmEngine(Engine):
    """Serves one role of a disaggregated deployment, or whole requests in the role `both`."""

    context: ContextPhase = field(init=False)
    generation: GenerationPhase = field(init=False)

    async def start(self) -> None:
        """Set up the phases; to a context worker no connection is kept between two fetches."""
        await super().start()
        self.context = ContextPhase(self)
        self.generation = GenerationPhase(
            self,
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True),
                timeout=aiohttp.ClientTimeout(total=self.settings.fetch_seconds),
            ),
        )

    async def stop(self) -> None:
        """Close the way to context workers and forget what is held."""
        await self.generation.session.close()
        await super().stop()

    @property
    def routes(self) -> Mapping[str, tuple[str, Handler]]:
        """The endpoints, with the one that describes the worker."""
        return {**super().routes, "/server_info": ("GET", self.server_info)}

    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode msgpack if the header announces it, else JSON; an empty body is an empty object."""
        if self.settings.require_msgpack and wire != "msgpack":
            raise self.bad("this worker takes msgpack bodies only")
        if raw and not is_json_type(content_type):
            # Without the JSON content type the framework hands the bytes over undecoded.
            raise self._invalid(Problem("model_attributes_type", ("body",), "Input should be a valid dictionary"))
        try:
            body = decode(raw, wire)
        except ValueError as error:
            if wire == "msgpack":
                raise Rejection(422, {"detail": f"malformed msgpack body: {error}"}) from None
            position = getattr(error, "pos", 0)
            raise self._invalid(Problem("json_invalid", ("body", position), "JSON decode error")) from None
        if not isinstance(body, dict):
            raise self._invalid(*CHAT.problems(body))
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
        params = {"ctx_info_endpoint": [self.url]} if self.settings.role == "context" else {}
        info = {
            "disaggregated_params": params,
            "tokens_per_block": self.settings.tokens_per_block,
            "kv_cache_hash_algo": "v1_block_key",
            "render_fingerprint": "stub-1",
        }
        await call.send_json(info)

    async def completions(self, call: Call) -> None:
        """Answer a completions request in the phase that it asks for."""
        self._check(call.body, chat=False)
        try:
            job = read_job(call.body, read_prompts(call.body["prompt"]), chat=False)
        except ValueError as error:
            raise self.bad(str(error)) from None
        await self._run(call, job)

    async def chat(self, call: Call) -> None:
        """Answer a chat request in the phase that it asks for; the model's name is not looked at."""
        self._check(call.body, chat=True)
        try:
            job = read_job(call.body, (_chat_prompt(call.body),), chat=True)
        except ValueError as error:
            raise self.bad(str(error)) from None
        await self._run(call, job)

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a generation worker that fetches what this worker holds."""
        if path != FETCH_PATH or self.settings.role != "context":
            return await super().side(request, path)
        return await self.context.answer_fetch(request)

    async def _run(self, call: Call, job: Job) -> None:
        job = self.fit(job)
        params = cast("Mapping[str, object]", call.body.get("disaggregated_params") or {})
        match self.settings.role, params.get("request_type"):
            case "context", "context_only":
                await self.context.run(call, job, params)
            case "generation", "generation_only":
                await self.generation.run(call, job, params)
            case (("generation" | "both"), None):
                await self.answer(call, job, trtllm_extras(chat=job.chat))
            case role, asked:
                raise self.bad(f"a worker of the role {role} does not serve requests of the type {asked}")

    def _check(self, body: dict[str, object], *, chat: bool) -> None:
        table = CHAT if chat else COMPLETIONS
        problems = list(table.problems(body)) or list(rule_problems(body, chat=chat))
        if problems:
            raise self._invalid(*problems)
        if body.get("chat_template") is not None and not self.settings.allow_chat_template:
            raise self.bad("a chat_template in a request is not enabled on this server")

    def _invalid(self, *problems: Problem) -> Rejection:
        return Rejection(400, {"error": report(list(problems))})


def _chat_prompt(body: Mapping[str, object]) -> Prompt:
    """Take the token ids that a context worker has made, in either form, or make them from the messages."""
    tokens = body.get("prompt_token_ids")
    packed = body.get("prompt_token_ids_b64")
    if tokens is None and packed:
        tokens = unpack_token_ids(str(packed))
    if tokens is None:
        return read_messages(body)
    if not tokens:
        raise ValueError("prompt_token_ids must not be empty")
    return tuple(cast("list[int]", tokens))
