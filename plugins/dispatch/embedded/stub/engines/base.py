"""What every engine has: the probe endpoints, its place among the workers, and the way to an answer."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from attrs import define, evolve, field, frozen

from plugins.dispatch.embedded.stub.apis import COMPLETIONS
from plugins.dispatch.embedded.stub.cache import PrefixCache
from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.answering import Answer, Phase
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.prompts import read_prompt
from plugins.dispatch.embedded.stub.handoffs import HandoffStore
from plugins.dispatch.embedded.stub.ledger import Ledger
from plugins.dispatch.embedded.stub.script import read_script
from plugins.dispatch.embedded.stub.settings import StubSettings
from plugins.dispatch.embedded.stub.shapes.base import Shape

Handler = Callable[[Call], Awaitable[None]]


@frozen
class Place:
    """Where a worker is: its URL, and the port on which other workers ask for what it holds, if it has one."""

    url: str
    host: str
    port: int
    side_port: int | None = None


@define(eq=False)
class Engine(ABC):
    """One engine's protocol; subclasses say what they refuse and how their errors look."""

    settings: StubSettings
    place: Place
    ledger: Ledger
    handoffs: HandoffStore = field(init=False)
    cache: PrefixCache = field(init=False)
    started: int = field(default=0, init=False)
    _routes: dict[str, dict[str, Handler]] = field(factory=dict, init=False)
    _errands: "set[asyncio.Task[None]]" = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        for name, handler in self.handlers().items():
            method, path = name.split()
            self._routes.setdefault(path, {})[method] = handler
        self.cache = PrefixCache(settings.tokens_per_block)
        self.handoffs = HandoffStore(settings.hold_seconds, settings.tokens_per_block, self.ledger.notify)

    @classmethod
    def has_side_door(cls, settings: StubSettings) -> bool:
        """Whether a worker with these settings listens on a second port, for other workers."""
        del settings
        return False

    @property
    def waiting(self) -> int:
        """How many pairs wait here for their other half."""
        return 0

    def handlers(self) -> Mapping[str, Handler]:
        """The handler of each method and path."""
        return {
            "GET /health": self.health,
            "GET /version": self.show_version,
            "GET /v1/models": self.models,
            "POST /v1/completions": self.completions,
            "POST /v1/chat/completions": self.chat,
        }

    def route(self, method: str, path: str) -> Handler:
        """Find the handler of a request; raises `Rejection` where there is none."""
        handlers = self._routes.get(path)
        if handlers is None:
            raise Rejection(404, {"detail": "Not Found"})
        if method not in handlers:
            raise Rejection(405, {"detail": "Method Not Allowed"}, {"Allow": ", ".join(handlers)})
        return handlers[method]

    def takes_body(self, path: str) -> bool:
        """Whether a path is one that takes bodies."""
        return "POST" in self._routes.get(path, ())

    async def start(self) -> None:
        """Open what the engine needs and note the time."""
        self.started = int(time.time())

    async def stop(self) -> None:
        """Close what the engine has opened and forget what it holds."""
        self.die()
        await asyncio.gather(*self._errands, return_exceptions=True)

    def die(self) -> None:
        """Forget at once what is held, and tell nobody."""
        for errand in self._errands:
            errand.cancel()
        self.handoffs.forget()

    @abstractmethod
    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode a body, or raise `Rejection`."""

    @abstractmethod
    def error(self, status: int, message: str) -> object:
        """Make an error body in the engine's shape."""

    def dress(self, path: str, body: object) -> object:
        """Put an error body into the envelope of the API that a path belongs to."""
        del path
        return body

    def bad(self, message: str) -> Rejection:
        """Make the rejection of a request that is wrong."""
        return Rejection(400, self.error(400, message))

    @abstractmethod
    def stream_error(self, message: str) -> object:
        """Make the payload of an error event."""

    @abstractmethod
    async def completions(self, call: Call) -> None:
        """Answer a completions request."""

    @abstractmethod
    async def chat(self, call: Call) -> None:
        """Answer a chat request."""

    @abstractmethod
    async def models(self, call: Call) -> None:
        """Answer the list of models."""

    async def health(self, call: Call) -> None:
        """Answer that the worker is up."""
        await call.send_bytes(b"", 200, {})

    async def show_version(self, call: Call) -> None:
        """Answer the version."""
        await call.send_json({"version": "0.0.0+stub"})

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a request of another stub's engine."""
        del request
        raise Rejection(404, {"detail": f"no {path} here"})

    def is_context(self, body: Mapping[str, object]) -> bool:
        """Whether a body is that of a context leg."""
        del body
        return False

    def leave(self, call: Call) -> None:
        """Take note that a request has ended, in whatever way."""
        del call

    def fit(self, job: Job) -> Job:
        """Cut the answer to the room that is left; raise `Rejection` for a prompt that leaves none."""
        longest = max(map(len, job.prompts))
        if longest >= self.settings.context_tokens:
            raise self.too_long(longest)
        return evolve(job, limit=min(job.limit, self.settings.context_tokens - longest))

    def admit(self, job: Job) -> Job:
        """Keep the prompts in the prefix cache, and count what of them was there already."""
        cached = sum(map(self.cache.match, job.prompts))
        created = sum(map(self.cache.keep, job.prompts))
        return evolve(job, cached_tokens=cached, created_tokens=created)

    @abstractmethod
    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""

    def prepare(self, call: Call, job: Job, shape: Shape, phase: Phase | None = None) -> Answer:
        """Make the answer to a checked request, ready to be sent."""
        if self.settings.allow_script and job.api != COMPLETIONS:
            job = evolve(job, script=read_script(read_prompt(call.body, job.api)))
        dress = partial(self.dress, call.request.path)
        return Answer(call, job, shape, self.settings.token_delay, self._failure, dress, phase or Phase())

    def run_errand(self, errand: Coroutine[Any, Any, None]) -> None:
        """Do something that no request waits for; it ends with the worker."""
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _failure(self) -> object:
        return self.stream_error("the engine has stopped working on this request")
