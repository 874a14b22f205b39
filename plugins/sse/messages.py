"""The streams of Anthropic's Messages API: `message_stop` at the end, or an event `error`."""

from typing import Any, ClassVar

from plugins.envelopes import anthropic_error, rejection_of
from plugins.sse.events import event
from plugins.sse.named import NamedGate, is_error


class MessagesGate(NamedGate):
    """Lets one stream of Messages through up to its end; what comes after an error is kept back."""

    __slots__ = ()

    marks: ClassVar = (b"message_stop", b"error")

    def push(self, chunk: bytes) -> bytes:
        """Take bytes cut anywhere; returns the bytes up to the end of the last whole event, or of an error."""
        return b"" if self.errored else super().push(chunk)

    def failure(self, error: BaseException | None, request_id: str) -> bytes:
        """The event `error`."""
        return event(b"error", anthropic_error(rejection_of(error), request_id))

    def _is_last(self, name: bytes, _value: dict[str, Any]) -> bool:
        return name in (b"message_stop", b"error")

    def _is_stray(self, name: bytes, value: dict[str, Any]) -> bool:
        return name != b"error" and (value.get("type") == "error" or ("type" not in value and is_error(value)))

    def _note(self, name: bytes, _value: dict[str, Any], _data: bytes) -> None:
        self.done = self.done or name == b"message_stop"
        self.errored = self.errored or name == b"error"
