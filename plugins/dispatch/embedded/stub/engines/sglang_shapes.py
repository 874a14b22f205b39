"""The fields by which SGLang's answers differ from others, on each API."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from attrs import define, field

from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.shapes.base import DONE, Choice, Counts, Shape, event
from plugins.dispatch.embedded.stub.shapes.messages import MessagesShape
from plugins.dispatch.embedded.stub.shapes.openai import OpenAIShape
from plugins.dispatch.embedded.stub.shapes.responses import ResponsesShape
from plugins.dispatch.embedded.stub.text import Piece


def sglang_shape(job: Job, model: str, id: str, body: Mapping[str, object]) -> Shape:
    """Make the shape of an answer to a body."""
    match job.api:
        case "responses":
            told = {name: body.get(name) for name in ("temperature", "top_p", "instructions")}
            made = SglangResponses(model, job.limit, told)
            made.id = id if id.startswith("resp_") else f"resp_{id}"
            return made
        case "messages":
            return SglangMessages(model)
        case _:
            return SglangOpenAI(job.chat, model, job.asked, job.choices, id=id)


@define(eq=False)
class SglangOpenAI(OpenAIShape):
    """The answers of completions and chat; a chat's stream is silent until its first token."""

    _opened: set[int] = field(factory=set, init=False)

    stop_field: ClassVar[str] = "matched_stop"

    @property
    def finish_with_text(self) -> bool:
        """Whether the finish reason comes with the last text."""
        return not self.chat

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""
        versions = [{"version": "default", "start": 0, "end": len(choices[0].tokens)}]
        made = super().whole(choices, counts)
        return {**made, "metadata": {"weight_version": "default", "weight_versions": versions}}

    def opening(self, counts: Counts) -> Iterator[bytes]:
        """Make nothing: the role comes with the first token."""
        del counts
        yield from ()

    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the chunks of a token, and before the first one that of the role."""
        if self.chat and index not in self._opened:
            self._opened.add(index)
            yield event(self.role_chunk(index, counts))
        yield from super().step(index, piece, counts)

    def failure(self, payload: object) -> bytes | None:
        """Make the events of an error after the stream has begun."""
        return event({"error": payload}) + DONE

    def choice(self, index: int, choice: Choice) -> dict[str, object]:
        """Make one choice of a whole answer."""
        made = super().choice(index, choice)
        if self.chat:
            made["message"] = {"role": "assistant", "content": choice.text, "reasoning_content": None}
        return made

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage."""
        return {**super().usage(counts), "reasoning_tokens": 0, "completion_tokens_details": None}

    def last_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage in the last chunk, which has fewer details in completions."""
        made = self.usage(counts)
        details = () if self.chat else ("prompt_tokens_details", "completion_tokens_details")
        return {name: value for name, value in made.items() if name not in details}

    def text_chunk(self, index: int, piece: Piece) -> dict[str, object]:
        """Make the chunk of one token; completions say in the last one how they ended."""
        if not self.chat:
            return {**self.chunk(index, {"text": piece.text}, piece), "usage": None}
        return self.chunk(index, {"delta": {"reasoning_content": None, "content": piece.text}}, None)

    def finish_chunk(self, index: int, piece: Piece) -> dict[str, object]:
        """Make the chunk that says how a choice of a chat ended."""
        return self.chunk(index, {"delta": {"reasoning_content": None}}, piece)

    def role_chunk(self, index: int, counts: Counts) -> dict[str, object]:
        """Make the chunk that opens a choice of a chat."""
        del counts
        return self.chunk(index, {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}, None)


@define(eq=False)
class SglangMessages(MessagesShape):
    """The answers of the messages API, whose input tokens are those that had to be computed."""

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage of a whole answer."""
        cached = {"cache_read_input_tokens": counts.cached} if counts.cached else {}
        return {"input_tokens": counts.prompt - counts.cached, "output_tokens": counts.completion, **cached}


@define(eq=False)
class SglangResponses(ResponsesShape):
    """The answers of the Responses API."""

    phase: ClassVar[str | None] = "final_answer"

    def fields(self) -> Mapping[str, object]:
        """Make the fields that a response has besides the common ones."""
        return {
            **dict.fromkeys(("error", "instructions", "previous_response_id", "temperature", "top_p", "user")),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": True,
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": None, "summary": None},
            "truncation": "disabled",
            "metadata": {},
        }

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage."""
        made = super().usage(counts)
        return {**made, "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0}}
