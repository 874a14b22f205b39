"""The fields by which vLLM's answers of the messages and Responses APIs differ from others."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import define, field

from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts
from plugins.dispatch.embedded.stub.shapes.messages import MessagesShape
from plugins.dispatch.embedded.stub.shapes.responses import ResponsesShape


@define(eq=False)
class VllmMessages(MessagesShape):
    """The answers of the messages API, whose input tokens are those that had to be computed and are not kept."""

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage of a whole answer."""
        return {
            "input_tokens": counts.prompt - counts.cached - counts.created,
            "output_tokens": counts.completion,
            "cache_creation_input_tokens": counts.created,
            "cache_read_input_tokens": counts.cached,
        }

    def last_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage at the end of a stream."""
        return self.usage(counts)

    def opening_fields(self) -> Mapping[str, object]:
        """Make the null fields of the opening message."""
        return {"stop_reason": None, "stop_sequence": None}

    def closing_fields(self, choice: Choice) -> Mapping[str, object]:
        """Make the stop string of the delta."""
        return {"stop_sequence": choice.last.stop_reason if choice.last else None}


@define(eq=False)
class VllmResponses(ResponsesShape):
    """The answers of the Responses API; a stream that fails is broken off."""

    id: str = field(init=False, factory=str)
    cut_event: ClassVar[str] = "response.completed"

    def failure(self, payload: object) -> bytes | None:
        """Make nothing: the engine breaks the connection."""
        del payload
        return None

    def empty_part(self) -> dict[str, object]:
        """Make the part that the first text is added to."""
        return {**super().empty_part(), "logprobs": []}

    def fields(self) -> Mapping[str, object]:
        """Make the fields that a response has besides the common ones."""
        nulls = ("instructions", "metadata", "max_tool_calls", "previous_response_id", "prompt", "reasoning", "text")
        more = ("top_logprobs", "user", "kv_transfer_params", "ec_transfer_params", "input_messages", "output_messages")
        return {
            **dict.fromkeys((*nulls, *more)),
            "parallel_tool_calls": True,
            "tool_choice": "none",
            "tools": [],
            "background": False,
            "service_tier": "auto",
            "truncation": "disabled",
        }

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage."""
        turns: dict[str, object] = {"input_tokens_per_turn": [], "cached_tokens_per_turn": []}
        spent = {"reasoning_tokens": 0, "tool_output_tokens": 0}
        return {
            **super().usage(counts),
            "input_tokens_details": {
                "cached_tokens": counts.cached,
                "cache_write_tokens": counts.created,
                **turns,
            },
            "output_tokens_details": {**spent, "output_tokens_per_turn": [], "tool_output_tokens_per_turn": []},
        }
