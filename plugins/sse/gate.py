"""The streams of completions and chat: events without a name, `data: [DONE]` at the end."""

import orjson

from plugins.envelopes import openai_error, rejection_of
from plugins.slots import WorkerRejection
from plugins.sse.events import DONE, events, is_done, parse
from plugins.sse.holding import WHOLE, take_whole


class EventGate:
    """Lets whole events of one stream through and remembers how the stream stands.

    `done` once the event `[DONE]` passed, `errored` once an error passed: an event of that name, or one whose
    data is an error object. Bytes pass unchanged, but an error object that is flat is put into OpenAI's shape,
    since a client takes a flat one for a piece of the answer. `told` is an error that was kept back, since it came in
    no shape of the stream's grammar.
    """

    __slots__ = ("_held", "done", "errored", "told")

    def __init__(self) -> None:
        self._held = bytearray()
        self.told: WorkerRejection | None = None
        self.done = False
        self.errored = False

    def push(self, chunk: bytes) -> bytes:
        """Take bytes cut anywhere; returns the bytes up to the end of the last whole event.

        Raises:
            WorkerRejection: 502, an event grew beyond `HELD_LIMIT`.
        """
        if self._held or not chunk.endswith(WHOLE):
            chunk = take_whole(self._held, chunk)
        if DONE in chunk or b"error" in chunk:
            return self._look(chunk)
        return chunk

    def ends_done(self) -> bool:
        """Whether what is held is a `data: [DONE]` that lacks only its blank line."""
        return DONE in self._held and any(is_done(data) for _, data in events(bytes(self._held) + b"\n\n"))

    def flush(self) -> bytes:
        """At a stream's end: a `data: [DONE]` that lacked its blank line, else nothing.

        What is left of an event that was cut is dropped: a client could not read it.
        """
        rest = b""
        if self.ends_done():
            rest, self.done = b"data: [DONE]\n\n", True
        elif not self._held.strip(b"\r\n"):
            rest = bytes(self._held)  # the second half of a blank line's end
        self._held.clear()
        return rest

    def failure(self, error: BaseException | None, _request_id: str) -> bytes:
        """The last bytes of a stream that broke for `error`."""
        return b"data: " + orjson.dumps(openai_error(rejection_of(error))) + b"\n\n"

    def _look(self, chunk: bytes) -> bytes:
        for name, data in events(chunk):
            if is_done(data):
                self.done = True
            elif name == b"error" or b"error" in data:
                value = parse(data) or {}
                flat = value.get("object") == "error" and not value.get("error")
                if flat:
                    chunk = chunk.replace(data, b'{"error":' + data + b"}")
                self.errored = self.errored or flat or name == b"error" or bool(value.get("error"))
        return chunk
