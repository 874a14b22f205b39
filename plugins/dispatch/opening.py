"""The first events of a stream, up to the one that says something: until then it can still become an error."""

from typing import Any, Final

import orjson
from attrs import define, field

from plugins.dispatch.client import MalformedFault, Response
from plugins.dispatch.rejections import worker_rejection
from plugins.sse import DONE, boundary, events

_EVENTS: Final = 64
_BYTES: Final = 1024 * 1024
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
_OPENINGS: Final = frozenset(("response.created", "response.queued", "response.in_progress", "message_start", "ping"))


@define(eq=False)
class Opening:
    """What of a stream has come while nothing was said.

    A generation worker opens its stream before it has the KV cache: vLLM sends the role at once and learns after
    seconds that the context worker is gone.
    """

    _held: bytearray = field(factory=bytearray, init=False)
    _seen: int = field(default=0, init=False)
    _events: int = field(default=0, init=False)

    async def read(self, response: Response) -> bytes:
        """The bytes up to and with those that say something.

        Raises:
            WorkerRejection: the worker told of an error.
            Fault: the stream broke, or ended.
        """
        while True:
            chunk = await response.chunk()
            if not chunk:
                raise MalformedFault("the stream ended before it said anything")
            self._held += chunk
            if self._says_something(response):
                return bytes(self._held)

    def _says_something(self, response: Response) -> bool:
        end = boundary(self._held, self._seen)
        if end:
            whole, self._seen = bytes(self._held[self._seen : end]), end
            for name, data in events(whole):
                self._events += 1
                if _speaks(name, data, response):
                    return True
        return self._events > _EVENTS or len(self._held) > _BYTES


def _speaks(name: bytes, data: bytes, response: Response) -> bool:
    if data.strip() == DONE:
        return True
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return True
    if not isinstance(value, dict):
        return True
    _check_error(name, value, data, response)
    kind, choices = value.get("type"), value.get("choices")
    if isinstance(choices, list) and choices:
        return not all(isinstance(choice, dict) and _is_bare(choice) for choice in choices)
    return kind not in _OPENINGS


def _check_error(name: bytes, value: dict[str, Any], data: bytes, response: Response) -> None:
    error = value.get("error")
    if error or name == b"error" or value.get("object") == "error":
        code = (error if isinstance(error, dict) else value).get("code")
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
        raise worker_rejection(status, data, response.headers)


def _is_bare(choice: dict[str, Any]) -> bool:
    """Whether a choice names a role at most."""
    if choice.get("finish_reason") is not None:
        return False
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return choice.get("text") == ""
    return all(value in _EMPTY for key, value in delta.items() if key != "role")
