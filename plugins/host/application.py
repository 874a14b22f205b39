"""The application at work on one request: whatever it does, the client gets an answer or sees that there is none."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from plugins.host.cycle import Cycle

Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_FAILED: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"21"),
    (b"connection", b"close"),
)

log = logging.getLogger("uvicorn.error")


async def run(app: Application, cycle: Cycle) -> None:
    """Have the application answer; until then the task of the cycle is one of its connection's."""
    try:
        await app(cycle.scope, cycle.receive, cycle.send)
    except BaseException as error:
        log.error("Exception in ASGI application\n", exc_info=error)  # noqa: TRY400 - not only exceptions
        await _fail(cycle)
    else:
        if not cycle.response_complete and not cycle.disconnected:
            log.error("ASGI callable returned without completing response.")
            await _fail(cycle)
    finally:
        if cycle.task is not None:
            cycle.connection.tasks.discard(cycle.task)
            cycle.task = None


async def _fail(cycle: Cycle) -> None:
    """Answer in the application's place, or cut the answer that it has begun."""
    if cycle.response_started:
        cycle.connection.close()
        return
    await cycle.send({"type": "http.response.start", "status": 500, "headers": _FAILED})
    await cycle.send({"type": "http.response.body", "body": b"Internal Server Error"})
