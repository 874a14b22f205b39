"""The two ends of a request on the wire: reading its body within limits, writing its reply."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from structlog.stdlib import get_logger

from kernel.errors import ClientGone, Rejection
from kernel.race import Interruptible, Message, begin
from kernel.reply import CLIENT_GONE, COMPLETED, FAILED, BytesReply, Headers, Link, Outcome, StreamReply

Send: TypeAlias = Callable[[Message], Awaitable[None]]

NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
TRUNCATED = "kernel.truncated"  # in ASGI's `state`, set by a server whose client stopped sending in mid-body

log = get_logger()


async def read_body(request: Interruptible, scope: Message, announced: int, limit: int, seconds: float) -> bytes:
    """Read a whole request body, of `announced` bytes if that is known; `Exchange.read` tells what it raises."""
    if request.may_watch:
        raise RuntimeError("the body of this request was read already")
    _check_size(announced, limit)
    if request.reason is not None:
        raise request.reason
    body = begin(_gather(request, scope, limit))  # most are there already, and need no clock
    if not isinstance(body, bytes):
        late = f"the request body did not arrive within {seconds:g} s"
        timer = request.loop.call_later(seconds, lambda: request.interrupt(_rejection(408, late)))
        try:
            with request.interruptible():
                body = await body
        finally:
            timer.cancel()
    request.may_watch = True
    return body


async def _gather(request: Interruptible, scope: Message, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client hung up in the middle of its body")
        parts.append(part := message.get("body", b""))
        _check_size(size := size + len(part), limit)
        more = message.get("more_body", False)
        if more and scope.get("state", {}).get(TRUNCATED):
            raise _rejection(400, "the request body ended before its announced length")
    return b"".join(parts)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _rejection(413, f"the request body is larger than {limit} bytes", "body_too_large")


def _rejection(status: int, message: str, code: str | None = None) -> Rejection:
    # the rest of a body that was not read must not be taken for a request
    return Rejection(status, message, code, (("connection", "close"),))


def sendable_headers(reply: BytesReply | StreamReply) -> Headers:
    """The reply's headers but for lengths, which are the server's; raises `ValueError` for what cannot be sent."""
    if not 200 <= reply.status <= 599:
        raise ValueError(f"status {reply.status} cannot be sent")
    headers: Headers = []
    for pair in reply.headers:
        name, value = pair
        if not NAME.fullmatch(name) or CONTROL.search(value):
            raise ValueError(f"header {name!r} cannot be sent")
        if name.lower() not in LENGTHS:
            headers.append(pair)
    return headers


async def write_bytes(reply: BytesReply, send: Send, headers: Headers) -> None:
    """Write a whole answer with `headers`, and its length."""
    headers.append((b"content-length", b"%d" % len(reply.body)))
    try:  # a context manager costs more than all else here
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})
    except OSError:  # a server says so that it cannot write to the client any more
        pass


async def write_stream(reply: StreamReply, send: Send, headers: Headers, request: Interruptible) -> Outcome:
    """Write a stream in the caller's own task, to its end or until the request is interrupted; its links hear which.

    A failed stream that no link can close is left unfinished, so that the server cuts it and it does not look whole.
    """
    outcome = Outcome(CLIENT_GONE)
    try:
        outcome = await _pump(reply, send, headers, request)
        if outcome.name != CLIENT_GONE:
            tail, outcome = _close(reply.links, outcome)
            if tail is not None:
                await send({"type": "http.response.body", "body": tail})
    except OSError as error:
        outcome = Outcome(CLIENT_GONE, error)
    except BaseException as error:
        outcome = Outcome(FAILED, error, reply.owner)
        raise
    finally:
        for owner, fault in reply.finish(outcome):
            log.error("plugin.failed", plugin=owner, at="stream end", exc_info=fault)
    return outcome


async def _pump(reply: StreamReply, send: Send, headers: Headers, request: Interruptible) -> Outcome:
    """Write the source through the links; whoever is at work when something is raised is `owner`."""
    links, owner, sending = reply.links, reply.owner, True
    try:
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        sending = False
        with request.interruptible():
            request.may_watch = True  # whoever left a body unread will not read it any more
            request.watch()
            async for chunk in reply.source:
                for link in links:
                    if link.step is not None:
                        owner = link.owner
                        try:
                            chunk = link.step(chunk)  # noqa: PLW2901
                        except Exception as error:
                            chunk = _lose(link, "step", error, chunk)  # noqa: PLW2901
                owner = reply.owner
                if chunk:
                    sending = True
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    sending = False
        for link in links:
            owner = link.owner
            try:
                fault = link.check() if link.check is not None else None
            except Exception as error:
                fault = _lose(link, "check", error, None)
            if fault is not None:
                return Outcome(FAILED, fault, owner)
    except Exception as error:
        # a server says with an OSError that it cannot write to the client any more
        gone = isinstance(error, ClientGone) or (sending and isinstance(error, OSError))
        return Outcome(CLIENT_GONE, error) if gone else Outcome(FAILED, error, owner)
    return Outcome(COMPLETED)


def _lose(link: Link, part: str, error: Exception, instead: Any) -> Any:
    """Go on without the step or check of a fail-open plugin that has just raised; of any other the error is raised."""
    setattr(link, part, None)
    if not link.fail_open:
        raise error
    log.error("plugin.failed", plugin=link.owner, at=f"stream {part}", went_on=True, exc_info=error)
    return instead


def _close(links: list[Link], outcome: Outcome) -> tuple[bytes | None, Outcome]:
    """The closing bytes of every link, passed through the steps further out; None for a stream to be cut."""
    tail: bytes | None = b"" if outcome.name == COMPLETED else None
    for link in links:
        try:
            if tail and link.step is not None:
                rest, tail = tail, None
                tail = link.step(rest)
            if link.close is not None:
                tail = (tail or b"") + link.close(outcome)
        except Exception as error:
            log.exception("plugin.failed", plugin=link.owner, at="stream close", went_on=link.fail_open)
            if not link.fail_open and outcome.name == COMPLETED:
                tail, outcome = None, Outcome(FAILED, error, link.owner)
    return tail, outcome
