"""The streams of the Responses API: numbered events, and four of them end one."""

from time import time
from typing import Any, ClassVar, Final

from kernel import Rejection
from plugins.envelopes import TOO_LONG, rejection_of
from plugins.slots import WorkerRejection
from plugins.sse.events import COMMENT, HEARTBEAT, event, events, parse
from plugins.sse.named import NamedGate, is_error

_CREATED: Final = b"response.created"
_FAILED: Final = (b"response.failed", b"error")
_LAST: Final = (b"response.completed", b"response.incomplete", *_FAILED)


class ResponsesGate(NamedGate):
    """Lets one stream of Responses through, counts its events and keeps the first state of the answer.

    An event without a name has the one in its data, as clients read it.
    """

    __slots__ = ("_created", "_kept_alive", "_sent")

    marks: ClassVar = (*_LAST, _CREATED)

    def __init__(self) -> None:
        super().__init__()
        self._sent = 0
        self._created: bytes | None = None
        self._kept_alive = False

    def failure(self, error: BaseException | None, request_id: str) -> bytes:
        """The event `error`, and where the answer was begun `response.failed`, as workers end their own.

        So ends a stream, too, that was kept alive until it failed: some clients look at nothing else.
        """
        code, message = self._explain(error)
        told = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": self._sent}
        begun = (parse(self._created or b"") or {}).get("response")
        if self._kept_alive and self._created is None:
            begun = _unbegun(request_id)
        tail = event(b"error", told)
        if isinstance(begun, dict):
            why = {"code": code if code == TOO_LONG else "server_error", "message": message}
            state = begun | {"status": "failed", "error": why, "output": []}
            failed = {"type": "response.failed", "sequence_number": self._sent + 1, "response": state}
            tail += event(b"response.failed", failed)
        return tail

    def _explain(self, error: BaseException | None) -> tuple[str, str]:
        """A code for where it broke, and what of it is for the client."""
        rejection = rejection_of(error)
        if not isinstance(error, Rejection):
            return "internal_error", type(error).__name__ if error is not None else rejection.message
        if rejection.code == TOO_LONG:
            return TOO_LONG, rejection.message
        if isinstance(error, WorkerRejection):
            return "engine_error" if error is self.told else "upstream_error", rejection.message
        return rejection.code or "internal_error", rejection.message

    def _pass(self, chunk: bytes) -> bytes:
        if chunk is COMMENT or chunk is HEARTBEAT:
            self._kept_alive = True
            return chunk
        odd = chunk.startswith((b":", b"\n")) or b"\n:" in chunk or b"\r" in chunk
        self._sent += sum(1 for _ in events(chunk)) if odd else chunk.count(b"\n\n")
        return chunk

    def _is_last(self, name: bytes, value: dict[str, Any]) -> bool:
        return _named(name, value) in _LAST

    def _is_stray(self, name: bytes, value: dict[str, Any]) -> bool:
        return not name and "type" not in value and is_error(value)

    def _note(self, name: bytes, value: dict[str, Any], data: bytes) -> None:
        name = _named(name, value)
        if name == _CREATED and self._created is None:
            self._created = data
        self.done = self.done or name in _LAST
        self.errored = self.errored or name in _FAILED


def _unbegun(request_id: str) -> dict[str, Any]:
    """An answer that no worker has begun."""
    fixed = {"object": "response", "model": "", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": f"resp_{request_id}", "created_at": int(time()), **fixed}


def _named(name: bytes, value: dict[str, Any]) -> bytes:
    return name or str(value.get("type")).encode()
