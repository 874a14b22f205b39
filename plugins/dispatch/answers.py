"""Which answers of a worker can be passed on."""

from typing import Any, Final

import orjson

from plugins.dispatch.client import Fault, MalformedFault, Response, read_whole
from plugins.dispatch.rejections import ERROR_LIMIT, event_rejection, worker_rejection
from plugins.sse import DONE, events

_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
_EVENTS: Final = "text/event-stream"
_JSON: Final = frozenset(("", "application/json"))
_OPENINGS: Final = frozenset(("response.created", "response.queued", "response.in_progress", "message_start", "ping"))


def fits(response: Response, *, stream: bool) -> bool:
    """Whether an answer is of the kind that was asked for."""
    traits = response.traits
    return response.status == 200 and (traits.kind == _EVENTS) is stream and traits.encoding == "identity"


async def check_head(response: Response, *, stream: bool) -> None:
    """Let an answer through that is of the kind that was asked for.

    Raises:
        WorkerRejection: the worker answered with a status of 400 or more.
        MalformedFault: 502, it answered with something else.
    """
    if fits(response, stream=stream):
        return
    if response.status >= 400:
        try:
            body = await read_whole(response, ERROR_LIMIT)
        except Fault:
            body = b""
        raise worker_rejection(response.status, body, response.headers)
    if response.status != 200:
        raise MalformedFault(f"status {response.status}")
    if (response.traits.kind == _EVENTS) is not stream:
        raise MalformedFault(f"content type {response.headers.get('content-type', '')!r:.100}")
    raise MalformedFault(f"content encoding {response.headers.get('content-encoding', '')!r:.100}")


def check_first(response: Response, chunk: bytes) -> None:
    """Let the first bytes of a stream through, unless what it opens with is an error that should have been a status.

    Raises:
        WorkerRejection: the worker answered with an error event.
    """
    if b"error" in chunk:
        for name, data in events(chunk):
            if check_event(name, data, response):
                return


def check_event(name: bytes, data: bytes, response: Response) -> bool:
    """Whether an event says something, and does not only open its stream.

    Raises:
        WorkerRejection: it says that something went wrong.
    """
    if data.strip() == DONE:
        return True
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return True
    if not isinstance(value, dict):
        return True
    rejection = event_rejection(name, value, response.headers)
    if rejection is not None:
        raise rejection
    choices = value.get("choices")
    if isinstance(choices, list) and choices:
        return not all(isinstance(choice, dict) and _is_bare(choice) for choice in choices)
    return value.get("type") not in _OPENINGS


def _is_bare(choice: dict[str, Any]) -> bool:
    """Whether a choice names a role at most."""
    if choice.get("finish_reason") is not None:
        return False
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return choice.get("text") == ""
    return all(value in _EMPTY for key, value in delta.items() if key != "role")


def check_relayed(response: Response, answer: bytes) -> None:
    """Let through what is neither generated nor read here: JSON as a whole, and anything that is no JSON by its type.

    Raises:
        MalformedFault: 502, it is cut, or a page that something else than a worker made.
    """
    kind = response.traits.kind
    if kind in _JSON or kind.endswith("+json"):
        check_whole(response, answer, array=True)
    elif kind == "text/html":
        raise MalformedFault("a page in place of an answer")
    elif not response.traits.bounded:
        raise MalformedFault("a body without a length may have ended too soon")


def check_whole(response: Response, answer: bytes, *, array: bool = False) -> None:
    """Let a whole JSON object through, or an `array`. It is parsed only where nothing else tells that it is complete.

    Raises:
        MalformedFault: 502, it is something else, or cut.
    """
    body = answer.strip()
    whole = body.startswith(b"{") and body.endswith(b"}")
    if not whole and not (array and body.startswith(b"[") and body.endswith(b"]")):
        raise MalformedFault("the body is no JSON object")
    if not response.traits.bounded:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedFault(f"a body without a length ended too soon: {error}") from None
