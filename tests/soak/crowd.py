"""The clients of the soak: connections that ask again as soon as they are done, of which many hang up early."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import httptools
import orjson
from attrs import define, field, frozen

from tests.soak.fleet import MODELS

PATHS: Final = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
WORDS: Final = " ".join(f"word{number}" for number in range(40))
PATIENCE_SECONDS: Final = 20.0

STAY: Final = "stay"
BODY: Final = "in the body"
AT_ONCE: Final = "at once"
WHILE_WAITING: Final = "while waiting"
FIRST_BYTES: Final = "at the first bytes"
ENDINGS: Final = (*[STAY] * 14, BODY, AT_ONCE, WHILE_WAITING, WHILE_WAITING, WHILE_WAITING, FIRST_BYTES)


@frozen(eq=False)
class Visit:
    """One request: its bytes, and when its client leaves; `abrupt` with a reset, `seconds` after it was sent."""

    model: str
    request: bytes
    ending: str
    abrupt: bool
    seconds: float


@define(eq=False)
class Crowd:
    """Makes visits, one after the other on each connection, until there were `visits`, or it is `late`.

    `answered` counts the statuses that clients saw who stayed, `left` those who did not, by when they left.
    """

    port: int
    visits: int
    chance: random.Random
    before: Callable[[Visit], None]
    late: float = float("inf")
    answered: Counter[int] = field(factory=Counter)
    left: Counter[str] = field(factory=Counter)
    resets: int = 0
    done: int = 0
    broken: list[str] = field(factory=list)

    async def run(self, count: int) -> None:
        """Return when all visits are over."""
        await asyncio.gather(*(self._come() for _ in range(count)))

    async def _come(self) -> None:
        """Be one client after the other; a connection lasts until one of them hangs up or the server does."""
        loop = asyncio.get_running_loop()
        client: Client | None = None
        while self.done < self.visits and loop.time() < self.late and not self.broken:
            self.done += 1
            visit = self._plan()
            self.before(visit)
            if client is None or client.closed:
                _, client = await loop.create_connection(Client, "127.0.0.1", self.port)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    status = await client.visit(visit)
            except TimeoutError:
                self.broken.append(f"no answer after {PATIENCE_SECONDS:g} s: {visit.model}, {visit.request[:80]!r}")
                client.leave(abrupt=True)
                continue
            if status is None:
                self.left[visit.ending] += 1
                self.resets += visit.abrupt
            else:
                self.answered[status] += 1
        if client is not None and not client.closed:
            client.leave(abrupt=False)

    def _plan(self) -> Visit:
        chance = self.chance
        model = chance.choice(MODELS)
        path, said = chance.choice(list(PATHS.items()))
        stream = chance.random() < 0.5
        asked = [{"role": "user", "content": WORDS}] if said == "messages" else WORDS
        body = orjson.dumps({"model": model.name, said: asked, "max_tokens": chance.randint(1, 12), "stream": stream})
        head = f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        return Visit(
            model.name,
            head.encode() + b"\r\n\r\n" + body,
            chance.choice(ENDINGS),
            chance.random() < 0.3,
            chance.random() * 0.02,
        )


class Client(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.closed = False
        self._parser = httptools.HttpResponseParser(self)
        self._visit: Visit | None = None
        self._over: asyncio.Future[int | None] | None = None

    async def visit(self, visit: Visit) -> int | None:
        """Ask, and give the status of the answer once all of it has come; None for who left before."""
        loop = asyncio.get_running_loop()
        self._visit, self._over = visit, loop.create_future()
        self._transport.write(visit.request[:-20] if visit.ending == BODY else visit.request)
        timer = None
        if visit.ending in (AT_ONCE, BODY):
            self._go()
        elif visit.ending == WHILE_WAITING:
            timer = loop.call_later(visit.seconds, self._go)
        try:
            return await self._over
        finally:
            if timer is not None:
                timer.cancel()

    def leave(self, *, abrupt: bool) -> None:
        """Hang up."""
        self.closed = True
        if abrupt:
            self._transport.abort()
        else:
            self._transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """A server that hangs up in the middle of an answer is at fault."""
        del exc
        self.closed = True
        if self._over is not None and not self._over.done():
            self._over.set_exception(ConnectionError("the kernel hung up"))

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._over is None or self._over.done():
            return
        if self._visit is not None and self._visit.ending == FIRST_BYTES:
            self._go()
        else:
            self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self._over is not None and not self._over.done():
            if not self._parser.should_keep_alive():
                self.leave(abrupt=False)
            self._over.set_result(self._parser.get_status_code())

    def _go(self) -> None:
        """Hang up early, unless all is over."""
        if self._visit is not None and self._over is not None and not self._over.done():
            self._over.set_result(None)
            self.leave(abrupt=self._visit.abrupt)
