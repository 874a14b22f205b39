"""The two floors: the least that a gateway does on uvicorn with aiohttp's client, with and without a framework."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import aiohttp
import click
import orjson
import uvicorn
from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.bodies import PATH, TWO

Message = MutableMapping[str, Any]

_JSON: Final = {"content-type": "application/json"}


@define(eq=False)
class Upstream:
    """The worker side of both floors."""

    one: str
    context: str
    generation: str
    _ids: "count[int]" = field(init=False, factory=lambda: count(2**40))
    _session: aiohttp.ClientSession | None = field(init=False, default=None)

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """Keep connections to the workers for as long as the floor serves."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            yield

    async def ask(self, body: bytes) -> tuple[aiohttp.ClientResponse, bool]:
        """The response that is the client's, and whether it is a stream."""
        data = orjson.loads(body)
        if data["model"] != TWO:
            return await self._post(self.one, body), data["stream"]
        params: dict[str, Any] = {"request_type": "context_only", "disagg_request_id": next(self._ids)}
        first = {**data, "stream": False, "disaggregated_params": params}
        async with await self._post(self.context, orjson.dumps(first)) as response:
            answer = orjson.loads(await response.read())
        params = {**answer["choices"][0]["disaggregated_params"], "request_type": "generation_only"}
        second = {**data, "disaggregated_params": params, "prompt_token_ids": answer["prompt_token_ids"]}
        return await self._post(self.generation, orjson.dumps(second)), data["stream"]

    async def _post(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        assert self._session is not None
        return await self._session.post(url + PATH, data=body, headers=_JSON)


def build_framework_floor(upstream: Upstream) -> Starlette:
    """Floor A: a Starlette route."""

    async def answer(request: Request) -> Response:
        response, stream = await upstream.ask(await request.body())
        kind = response.headers["content-type"]
        if not stream:
            async with response:
                return Response(await response.read(), response.status, media_type=kind)

        async def events() -> AsyncIterator[bytes]:
            async with response:
                async for chunk in response.content.iter_any():
                    yield chunk

        return StreamingResponse(events(), response.status, media_type=kind)

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])], lifespan=upstream.lifespan)


def build_bare_floor(upstream: Upstream) -> Callable[..., Awaitable[None]]:
    """Floor B: an ASGI application without a framework."""
    beside = Starlette(lifespan=upstream.lifespan)

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
        async with response:
            headers = [(b"content-type", response.headers["content-type"].encode())]
            start = {"type": "http.response.start", "status": response.status, "headers": headers}
            if stream:
                await send(start)
                async for chunk in response.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            else:
                content = await response.read()
                headers.append((b"content-length", b"%d" % len(content)))
                await send(start)
                await send({"type": "http.response.body", "body": content})

    return answer


@click.command()
@click.argument("floor", type=click.Choice(["A", "B"]))
@click.option("--port", type=int, required=True)
@click.option("--one", required=True)
@click.option("--context", required=True)
@click.option("--generation", required=True)
def main(floor: str, port: int, one: str, context: str, generation: str) -> None:
    """Serve as a floor on 127.0.0.1, in front of the workers with these URLs."""
    upstream = Upstream(one, context, generation)
    app = build_framework_floor(upstream) if floor == "A" else build_bare_floor(upstream)
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
