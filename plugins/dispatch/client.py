"""One HTTP attempt, whatever the transport: what is sent, what comes back, and what can go wrong.

WorkerRejection
└── Fault               the attempt failed; status, code and message are fit for the client
    ├── ConnectFault    no connection, so nothing was sent
    ├── TimeoutFault    nothing came in time
    ├── TransportFault  the connection broke after something was sent
    │   └── StaleFault  a kept connection that its worker had closed already
    └── MalformedFault  something came that cannot be used
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

from attrs import define, frozen

from plugins.dispatch.headers import Traits
from plugins.slots import WorkerRejection


class Fault(WorkerRejection):
    """An attempt failed. `detail` is for the log alone: unlike the message it may hold an address.

    `worker_down` says that the worker should not be tried again before it has answered a probe.
    """

    answer: ClassVar[tuple[int, str, str]] = (502, "worker_unavailable", "the worker failed")
    worker_down: ClassVar[bool] = False

    def __init__(self, detail: str, message: str | None = None) -> None:
        status, code, text = self.answer
        super().__init__(status, message or text, code)
        self.detail = detail


class ConnectFault(Fault):
    """No connection to the worker: nothing was sent."""

    answer = (503, "worker_unavailable", "the worker cannot be reached")
    worker_down = True


class TimeoutFault(Fault):
    """The worker did not send anything, or not everything, in time."""

    answer = (504, "worker_timeout", "the worker did not answer in time")


class TransportFault(Fault):
    """The connection broke after the request was sent, or a part of it."""

    answer = (502, "worker_unavailable", "the connection to the worker broke before the answer was complete")
    worker_down = True


class StaleFault(TransportFault):
    """A connection kept from an earlier request broke at once and without a byte of an answer.

    The worker had closed it, or was restarted, while the request was on its way.
    """


class MalformedFault(Fault):
    """The worker answered, but not with what can be passed on."""

    answer = (502, "worker_error", "the worker's answer cannot be used")


@frozen
class Limits:
    """How long one attempt may take, in seconds: to connect, between two reads, and in all; None: for ever."""

    connect: float
    read: float | None = None
    total: float | None = None


@define(eq=False)
class Call:
    """One HTTP request; header names are in lower case. `on_sent` hears that it is on its way to the worker."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    limits: Limits
    on_sent: Callable[[], None] | None = None


class Response(Protocol):
    """An answer whose head has come in."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are found in any case."""
        ...

    @property
    def traits(self) -> Traits:
        """What the headers say of the body."""
        ...

    async def chunk(self) -> bytes:
        """The bytes of the body that have come in since the last call; empty at its end.

        Raises:
            TransportFault: the connection broke before the end.
            TimeoutFault: nothing came in time.
        """
        ...

    def rest(self) -> bytes | None:
        """What `chunk` would give up to the body's end, if it has come in already; None: ask `chunk`."""
        ...

    def close(self) -> None:
        """Be done with it: a connection that was not read to its end is closed. May be called again."""
        ...


class Client(Protocol):
    """Sends requests over connections that it keeps."""

    async def send(self, call: Call, *, fresh: bool = False) -> Response:
        """Send a request and wait for the head of its answer. With `fresh`, over a new connection.

        Cancelled, or failed, it leaves no connection open.

        Raises:
            ConnectFault: nothing was sent.
            StaleFault: a kept connection turned out to be closed; never with `fresh`.
            TransportFault: the connection broke.
            TimeoutFault: the head did not come in time.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


async def read_whole(response: Response, limit: int) -> bytes:
    """The whole body of an answer.

    Raises:
        MalformedFault: it is longer than `limit` bytes.
        TransportFault: the connection broke before its end.
        TimeoutFault: it did not come in time.
    """
    body = response.rest()
    if body is None:
        body = await _read_parts(response, limit)
    if len(body) > limit:
        raise _too_long(limit)
    return body


async def _read_parts(response: Response, limit: int) -> bytes:
    parts: list[bytes] = []
    size, rest = 0, None
    while rest is None and (chunk := await response.chunk()):
        size += len(chunk)
        if size > limit:
            raise _too_long(limit)
        parts.append(chunk)
        rest = response.rest()
    if rest:
        parts.append(rest)
    return b"".join(parts)  # which copies nothing if there is but one


def _too_long(limit: int) -> MalformedFault:
    return MalformedFault(f"the body is longer than {limit} bytes")
