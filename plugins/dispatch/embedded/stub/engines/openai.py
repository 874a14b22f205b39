"""A plain OpenAI-compatible worker, as strict as vLLM about what it understands."""

from typing import Final

import orjson
from attrs import define, evolve

from plugins.dispatch.embedded.stub.apis import CHAT, COMPLETIONS
from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.job import read_job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt, read_prompts
from plugins.dispatch.embedded.stub.fields import (
    BOOLEAN,
    INTEGER,
    LIST,
    NUMBER,
    PROMPT,
    STOP,
    STRING,
    Problem,
    Table,
    nested,
    optional,
    report,
    required,
)
from plugins.dispatch.embedded.stub.shapes.openai import Extras, OpenAIShape
from plugins.dispatch.embedded.stub.wire import is_json_type

_SHARED: Final = {
    **required(STRING, "model"),
    **optional(INTEGER, "n max_tokens max_completion_tokens seed"),
    **optional(NUMBER, "temperature top_p presence_penalty frequency_penalty"),
    **optional(BOOLEAN, "stream"),
    **optional(STOP, "stop"),
    **optional(STRING, "user"),
    **nested(Table(optional(BOOLEAN, "include_usage continuous_usage_stats"), open=True), "stream_options"),
}
_COMPLETIONS: Final = Table({**_SHARED, **required(PROMPT, "prompt")}, open=True)
_CHAT: Final = Table(
    {
        **_SHARED,
        **required(evolve(LIST, nested=Table(required(STRING, "role"), open=True)), "messages"),
        **optional(LIST, "tools"),
    },
    open=True,
)
_EXTRAS: Final = Extras(
    body={"service_tier": None, "system_fingerprint": "stub", "kv_transfer_params": None},
    choice={"token_ids": None},
    message={"refusal": None, "tool_calls": [], "reasoning": None},
    chunk_choice={"token_ids": None},
)
_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}


@define(eq=False)
class OpenAIEngine(Engine):
    """Answers the whole request itself; extra fields are taken and ignored."""

    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode a JSON object; the msgpack header means nothing here."""
        del wire
        if not is_json_type(content_type):
            raise self._schema(Problem("unsupported", ("body",), "Only application/json is accepted", content_type))
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise self._schema(Problem("json_invalid", ("body", error.pos), "JSON decode error")) from None
        if not isinstance(body, dict):
            raise self._schema(*_CHAT.problems(body))
        return body

    def error(self, status: int, message: str, param: str | None = None) -> object:
        """Make an error body in OpenAI's envelope."""
        kind = _TYPES.get(status, "InternalServerError")
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}

    def stream_error(self, message: str) -> object:
        """Make the payload of an error event, which has the same envelope."""
        return self.error(500, message)

    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""
        limit = self.settings.context_tokens
        return self._bad(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains {tokens} "
            f"input tokens. Please reduce the length of the input prompt.",
            "input_tokens",
        )

    async def models(self, call: Call) -> None:
        """Answer the list of models with the length that each can take."""
        card = {
            "id": self.settings.model,
            "object": "model",
            "created": self.started,
            "owned_by": "stub",
            "max_model_len": self.settings.context_tokens,
        }
        await call.send_json({"object": "list", "data": [card]})

    async def completions(self, call: Call) -> None:
        """Answer a completions request."""
        await self._serve(call, COMPLETIONS, _COMPLETIONS, "prompt")

    async def chat(self, call: Call) -> None:
        """Answer a chat request."""
        await self._serve(call, CHAT, _CHAT, "messages")

    async def _serve(self, call: Call, api: str, table: Table, asked: str) -> None:
        self._check(call.body, table)
        try:
            prompts = read_prompts(call.body, api)
        except ValueError as error:
            raise self._bad(str(error), asked) from None
        await self._run(call, prompts, api)

    async def _run(self, call: Call, prompts: tuple[Prompt, ...], api: str) -> None:
        try:
            job = read_job(call.body, prompts, api)
        except ValueError as error:
            raise self._bad(str(error), str(error).split(maxsplit=1)[0]) from None
        shape = OpenAIShape(job.chat, self.settings.model, job.asked, job.choices, _EXTRAS)
        await self.prepare(call, self.fit(job), shape).send()

    def _check(self, body: dict[str, object], table: Table) -> None:
        problems = list(table.problems(body))
        if problems:
            raise self._schema(*problems)
        if body["model"] != self.settings.model:
            message = f"The model `{body['model']}` does not exist."
            raise Rejection(404, self.error(404, message, "model"))
        if body.get("stream_options") is not None and body.get("stream") is not True:
            raise self._bad("stream_options needs stream to be true", "stream_options")

    def _bad(self, message: str, param: str | None) -> Rejection:
        return Rejection(400, self.error(400, message, param))

    def _schema(self, *problems: Problem) -> Rejection:
        # Faults of the schema have a type of their own, with a space.
        param = ".".join(map(str, problems[0].location))
        error = {"message": report(list(problems)), "type": "Bad Request", "param": param, "code": 400}
        return Rejection(400, {"error": error})
