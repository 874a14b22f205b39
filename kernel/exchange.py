"""One request on its way to one reply: endpoint, headers, slots, and what it holds."""

import random
import re
from asyncio import gather
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from attrs import frozen
from starlette.datastructures import Headers
from structlog.stdlib import get_logger

from kernel.race import Interruptible, Message, Receive, finish
from kernel.reply import NEVER_BEGUN, Outcome, Reply, StreamReply
from kernel.wire import read_body

T = TypeVar("T")

RELEASE_SECONDS = 10.0  # for everything that one exchange held
USABLE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")  # what a client's request id may look like to be taken over
log = get_logger()


@frozen(eq=False)
class Endpoint:
    """An address of the API: a `name` for logs and labels, a `path` or what ends in / for all below it, a `method`."""

    name: str
    path: str
    method: str = "POST"


@frozen(eq=False)
class Slot(Generic[T]):
    """A typed key of an exchange. Its identity is the object; the name is for people."""

    name: str


class Getter(Protocol):
    """Gives a slot's value, or None while it is empty."""

    def __call__(self, slot: Slot[T], /) -> T | None: ...  # noqa: D102


class Resources:
    """What an exchange must give back after its last byte, the latest first, each exactly once."""

    __slots__ = ("_releases",)

    def __init__(self) -> None:
        self._releases: list[Callable[[], object]] = []

    def push(self, release: Callable[[], object]) -> None:
        """Have `release` called at the end, and awaited if it returns an awaitable."""
        self._releases.append(release)

    async def close(self) -> None:
        """Give everything back, shielded from cancellation; what is awaited has `RELEASE_SECONDS` in all."""
        while (waits := self._release()) is not None:
            try:
                await finish(self._await_rest(waits), RELEASE_SECONDS)
            except TimeoutError:
                log.exception("resource.release_failed")

    def _release(self) -> Awaitable[object] | None:
        """Give back until something has to be awaited."""
        while self._releases:
            try:
                if (result := self._releases.pop()()) is not None and isinstance(result, Awaitable):
                    return result
            except Exception:
                log.exception("resource.release_failed")
        return None

    async def _await_rest(self, waits: Awaitable[object] | None) -> None:
        while waits is not None:
            for error in await gather(waits, return_exceptions=True):
                if isinstance(error, BaseException):
                    log.error("resource.release_failed", exc_info=error)
            waits = self._release()


class Exchange(Interruptible):
    """One request: what came in, what plugins leave for each other, and what must be given back.

    `id` is the client's `x-request-id` where that is usable, else a new one; it goes out with the answer. `arrived` is
    a reading of `time.monotonic()` in seconds, `scope` is ASGI's, and `sent` has the headers by their names as ASGI
    gives them, the last of each: a quick look at whether one is there.
    """

    __slots__ = (
        "_blamed", "_slots", "_streams",
        "arrived", "depth", "endpoint", "get", "given", "id", "resources", "scope", "sent", "timings",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, scope: Message, receive: Receive) -> None:
        super().__init__(receive)
        self.endpoint, self.scope = endpoint, scope
        self.sent: dict[bytes, bytes] = dict(scope["headers"])
        given = _usable_id(scope["headers"]) if b"x-request-id" in self.sent else None
        self.id = given or random.getrandbits(128).to_bytes(16, "big").hex()
        self.arrived = monotonic()
        self.resources, self.depth = Resources(), 0
        self.timings: list[tuple[str, float]] | None = None
        self._slots: dict[Slot[Any], Any] = {}
        self.get: Getter = self._slots.get
        self.given: list[tuple[int, Reply | Exception]] = []
        self._streams: list[StreamReply] = []
        self._blamed: tuple[BaseException, str] | None = None

    @property
    def headers(self) -> Headers:
        """The headers by their names in any case."""
        return Headers(raw=self.scope["headers"])

    def read(self, limit: int, seconds: float = 60.0) -> Coroutine[Any, Any, bytes]:
        """Read the body, once.

        Raises `Rejection`: 413 larger than `limit` bytes, 408 slower than `seconds`, 400 cut short; or `ClientGone`.
        """
        length = self.sent.get(b"content-length", b"")
        return read_body(self, self.scope, int(length[:20]) if length.isdigit() else 0, limit, seconds)

    def __getitem__(self, slot: Slot[T]) -> T:
        try:
            return self._slots[slot]  # type: ignore[no-any-return]  # what a slot of T was given
        except KeyError:
            raise LookupError(f"slot {slot.name!r} is empty") from None

    def __setitem__(self, slot: Slot[T], value: T) -> None:
        self._slots[slot] = value

    def __contains__(self, slot: Slot[Any]) -> bool:
        return slot in self._slots

    def track(self, stream: StreamReply, owner: str, *, fail_open: bool) -> None:
        """Note a stream that `owner` returned: it hears an outcome even if no one writes it."""
        if stream.owner is None:
            self._streams.append(stream)
        stream.claim(owner, fail_open=fail_open)

    def blame(self, error: BaseException, plugin: str) -> None:
        """Record which plugin `error` came from; the first one named for an error stands."""
        if self._blamed is None or self._blamed[0] is not error:
            self._blamed = (error, plugin)

    def culprit(self, error: BaseException) -> str | None:
        """The plugin that `error` came from, where it is known."""
        return self._blamed[1] if self._blamed is not None and self._blamed[0] is error else None

    async def release(self) -> None:
        """End the exchange: streams that nobody wrote hear of it, and everything held is given back."""
        self.settle()
        for stream in self._streams:
            for owner, fault in stream.finish(Outcome(NEVER_BEGUN)):
                log.error("plugin.failed", plugin=owner, at="stream end", exc_info=fault)
        await self.resources.close()


def _usable_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    ids = (value.decode("ascii") for name, value in headers if name == b"x-request-id" and USABLE_ID.fullmatch(value))
    return next(ids, None)
