"""The floors: the least that a gateway does on uvicorn, with and without a framework, and with two clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, cycle
from typing import Any, Final, TypeAlias

import aiohttp
import click
import orjson
import uvicorn
from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.bodies import ONE, PATH, SGLANG, TRTLLM, VLLM
from bench.clients import AiohttpAnswer, Answer
from bench.lean import Origin

Message = MutableMapping[str, Any]

KEEP_ALIVE_SECONDS: Final = 75
"""As long as the kernel keeps a client's connection that rests."""

_JSON: Final = {"content-type": "application/json"}


Post: TypeAlias = Callable[[Any, bytes], Awaitable[Answer]]


@define(eq=False)
class Upstream:
    """The worker side of all floors; workers take turns."""

    model: str
    one: Iterator[Any]
    context: Iterator[Any]
    generation: Iterator[Any]
    post: Post
    _ids: "count[int]" = field(init=False, factory=lambda: count(2**40))

    async def ask(self, body: bytes) -> tuple[Answer, bool]:
        """The answer that is the client's, and whether it is a stream."""
        data = orjson.loads(body)
        stream = data["stream"]
        if self.model == ONE:
            return await self.post(next(self.one), body), stream
        if self.model == SGLANG:
            return await self._ask_both(data), stream
        first = {**data, "stream": False, **self._marks()}
        answer = orjson.loads(await self._read(next(self.context), orjson.dumps(first)))
        if self.model == VLLM:
            second = {**data, "kv_transfer_params": answer["kv_transfer_params"]}
        else:
            params = {**answer["choices"][0]["disaggregated_params"], "request_type": "generation_only"}
            second = {**data, "disaggregated_params": params, "prompt_token_ids": answer["prompt_token_ids"]}
        return await self.post(next(self.generation), orjson.dumps(second)), stream

    def _marks(self) -> dict[str, Any]:
        """What makes a request one for a context worker."""
        if self.model == TRTLLM:
            return {"disaggregated_params": {"request_type": "context_only", "disagg_request_id": next(self._ids)}}
        return {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}

    async def _ask_both(self, data: dict[str, Any]) -> Answer:
        place = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 8998, "bootstrap_room": next(self._ids)}
        body = orjson.dumps({**data, **place})
        first = orjson.dumps({**data, **place, "stream": False})
        reading = asyncio.ensure_future(self._read(next(self.context), first))
        answer = await self.post(next(self.generation), body)
        await reading
        return answer

    async def _read(self, worker: Any, body: bytes) -> bytes:
        answer = await self.post(worker, body)
        try:
            return await answer.read()
        finally:
            answer.release()


def build_framework_floor(upstream: Upstream, lifespan: Any) -> Starlette:
    """Floor A: a Starlette route."""

    async def answer(request: Request) -> Response:
        response, stream = await upstream.ask(await request.body())
        kind = response.kind.decode()
        if not stream:
            try:
                return Response(await response.read(), response.status, media_type=kind)
            finally:
                response.release()

        async def events() -> AsyncIterator[bytes]:
            try:
                while chunk := await response.read_some():
                    yield chunk
            finally:
                response.release()

        return StreamingResponse(events(), response.status, media_type=kind)

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])], lifespan=lifespan)


def build_bare_floor(upstream: Upstream, lifespan: Any) -> Callable[..., Awaitable[None]]:
    """Floors B and D: an ASGI application without a framework."""
    beside = Starlette(lifespan=lifespan)

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await beside(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        response, stream = await upstream.ask(body)
        headers = [(b"content-type", response.kind)]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        try:
            if stream:
                await send(start)
                while chunk := await response.read_some():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            else:
                content = await response.read()
                headers.append((b"content-length", b"%d" % len(content)))
                await send(start)
                await send({"type": "http.response.body", "body": content})
        finally:
            response.release()

    return answer


@click.command()
@click.argument("floor", type=click.Choice(["A", "B", "D"]))
@click.option("--port", type=int, required=True)
@click.option("--model", required=True)
@click.option("--one", default="", help="URLs of workers, with commas between them.")
@click.option("--context", default="")
@click.option("--generation", default="")
def main(floor: str, port: int, model: str, one: str, context: str, generation: str) -> None:
    """Serve as a floor on 127.0.0.1, in front of the workers with these URLs."""
    session: aiohttp.ClientSession

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        nonlocal session
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield

    async def post(url: str, body: bytes) -> Answer:
        return AiohttpAnswer(await session.post(url, data=body, headers=_JSON))

    def turns(urls: str) -> Iterator[Any]:
        return cycle(_workers(urls.split(","), lean=floor == "D"))

    upstream = Upstream(model, turns(one), turns(context), turns(generation), Origin.post if floor == "D" else post)
    app = (build_framework_floor if floor == "A" else build_bare_floor)(upstream, lifespan)
    uvicorn.run(
        app,
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def _workers(urls: Sequence[str], *, lean: bool) -> list[Any]:
    return [Origin(url) if lean else url + PATH for url in urls if url]


if __name__ == "__main__":
    main()
