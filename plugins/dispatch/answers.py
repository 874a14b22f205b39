"""Which answers of a worker can be passed on."""

import re
from typing import Final

import orjson

from plugins.dispatch.client import Fault, MalformedFault, Response, read_whole
from plugins.dispatch.rejections import ERROR_LIMIT, worker_rejection

_EVENT: Final = re.compile(rb"\s*(?:event: ?error\r?\n)?data: ?(\{.*\})\r?\n\r?\n")
_LENGTHS: Final = ("content-length", "transfer-encoding")


async def check_head(response: Response, *, stream: bool) -> None:
    """Let an answer through that is of the kind that was asked for.

    Raises:
        WorkerRejection: the worker answered with a status of 400 or more.
        MalformedFault: 502, it answered with something else.
    """
    if response.status >= 400:
        try:
            body = await read_whole(response, ERROR_LIMIT)
        except Fault:
            body = b""
        raise worker_rejection(response.status, body, response.headers)
    if response.status != 200:
        raise MalformedFault(f"status {response.status}")
    kind = response.headers.get("content-type", "")
    if (kind.partition(";")[0].strip().lower() == "text/event-stream") is not stream:
        raise MalformedFault(f"content type {kind!r:.100}")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise MalformedFault(f"content encoding {encoding!r:.100}")


def check_first(response: Response, chunk: bytes) -> None:
    """Let the first bytes of a stream through, unless they are an error that should have been a status.

    Raises:
        WorkerRejection: the worker answered with an error event.
    """
    event = _EVENT.match(chunk)
    if event is None or b'"error"' not in event[1]:
        return
    try:
        data = orjson.loads(event[1])
    except orjson.JSONDecodeError:
        return
    error = data.get("error")
    if isinstance(error, dict) or data.get("object") == "error":
        code = (error if isinstance(error, dict) else data).get("code")
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
        raise worker_rejection(status, event[1], response.headers)


def check_whole(response: Response, answer: bytes) -> None:
    """Let a whole JSON object through. It is parsed only where nothing else tells that it is complete.

    Raises:
        MalformedFault: 502, it is something else, or cut.
    """
    body = answer.strip()
    if not (body.startswith(b"{") and body.endswith(b"}")):
        raise MalformedFault("the body is no JSON object")
    if not any(name in response.headers for name in _LENGTHS):
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedFault(f"a body without a length ended too soon: {error}") from None
