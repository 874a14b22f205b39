"""What every engine has: the probe endpoints, and the answering of a checked request."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

from aiohttp import web
from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call, Rejection
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.handoffs import HandoffStore
from plugins.dispatch.embedded.stub.replies import Choice, Extras, ReplyShape, event
from plugins.dispatch.embedded.stub.settings import StubSettings
from plugins.dispatch.embedded.stub.text import Piece

Handler = Callable[[Call], Awaitable[None]]


@define(eq=False)
class Engine(ABC):
    """One engine's protocol; subclasses say what they refuse and how their errors look."""

    settings: StubSettings
    url: str
    notify: Callable[[], None]
    handoffs: HandoffStore = field(init=False)
    started: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.handoffs = HandoffStore(self.settings.hold_seconds, self.settings.tokens_per_block, self.notify)

    @property
    def routes(self) -> Mapping[str, tuple[str, Handler]]:
        """The method and the handler of each path."""
        return {
            "/health": ("GET", self.health),
            "/version": ("GET", self.version),
            "/v1/models": ("GET", self.models),
            "/v1/completions": ("POST", self.completions),
            "/v1/chat/completions": ("POST", self.chat),
        }

    async def start(self) -> None:
        """Open what the engine needs and note the time."""
        self.started = int(time.time())

    async def stop(self) -> None:
        """Close what the engine has opened and forget what it holds."""
        self.handoffs.forget()

    @abstractmethod
    def decode(self, raw: bytes, wire: str, content_type: str | None) -> dict[str, object]:
        """Decode a body, or raise `Rejection`."""

    @abstractmethod
    def error(self, status: int, message: str) -> object:
        """Make an error body in the engine's shape."""

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

    async def version(self, call: Call) -> None:
        """Answer the version."""
        await call.send_json({"version": "0.0.0+stub"})

    async def side(self, _request: web.BaseRequest, path: str) -> web.Response:
        """Answer a request of another stub's engine."""
        raise Rejection(404, {"detail": f"no {path} here"})

    def fit(self, job: Job) -> Job:
        """Cut the answer to the room that is left; raise `Rejection` for a prompt that leaves none."""
        longest = max(map(len, job.prompts))
        if longest >= self.settings.context_tokens:
            raise self.too_long(longest)
        return evolve(job, limit=min(job.limit, self.settings.context_tokens - longest))

    @abstractmethod
    def too_long(self, tokens: int) -> Rejection:
        """Make the rejection of a prompt that is too long."""

    async def answer(self, call: Call, job: Job, extras: Extras) -> None:
        """Answer a checked request, as a stream if it asks for one."""
        shape = ReplyShape(job.chat, self.settings.model, extras)
        if job.stream and not call.has_fault("wrong_content_type"):
            failure = event(self.stream_error("the engine has stopped working on this request"))
            await call.send_stream(self._events(call, job, shape), failure)
        else:
            choices = await self.collect(call, job)
            await call.send_json(shape.whole(choices, job.usage(sum(choice.tokens for choice in choices))))

    async def collect(self, call: Call, job: Job) -> list[Choice]:
        """Make the whole answer, in the time that it takes."""
        choices = [Choice() for _ in range(len(job.prompts) * job.choices)]
        async for index, piece in self._steps(call, job):
            choices[index].add(piece)
        return choices

    async def _events(self, call: Call, job: Job, shape: ReplyShape) -> AsyncGenerator[bytes, None]:
        if job.chat:
            for index in range(job.choices):
                yield event(shape.role_chunk(index))
        sent = 0
        async for index, piece in self._steps(call, job):
            sent += 1
            chunk = shape.text_chunk(index, piece.text)
            if job.continuous_usage:
                chunk["usage"] = job.usage(sent)
            yield event(chunk)
            if piece.finish_reason is not None:
                yield event(shape.finish_chunk(index, piece))
        if job.include_usage:
            yield event(shape.usage_chunk(job.usage(sent)))

    async def _steps(self, call: Call, job: Job) -> AsyncGenerator[tuple[int, Piece], None]:
        delay = self.settings.token_delay + call.slow
        running = dict(enumerate(job.pieces()))
        while running:
            # Without a delay too: a client that leaves must be noticed between two tokens.
            await asyncio.sleep(delay)
            for index, pieces in list(running.items()):
                piece = next(pieces)
                if piece.finish_reason is not None:
                    del running[index]
                yield index, piece
