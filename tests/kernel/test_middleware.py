"""KernelMiddleware inside a FastAPI application, next to ordinary routes and other middleware."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel import BytesReply, CallNext, Exchange, KernelMiddleware, Reply, Runtime, Slot, StreamReply
from kernel.testing import stream_of
from tests.kernel.support import Shelf, serve, spec_of

pytestmark = pytest.mark.anyio

BODY = Slot[bytes]("body")


class Stamp:
    """Some other middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stamp the answer."""

        async def stamped(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                assert isinstance(headers, list)
                message["headers"] = [*headers, (b"x-stamp", b"1")]
            await send(message)

        await self.app(scope, receive, stamped)  # type: ignore[arg-type]


async def read(exchange: Exchange, call_next: CallNext) -> Reply:
    """Read the body."""
    exchange[BODY] = await exchange.read(1000)
    return await call_next(exchange)


async def echo(exchange: Exchange, _call_next: CallNext) -> Reply:
    """Send the body back, streamed where it asks for that."""
    body = exchange[BODY]
    return StreamReply(stream_of(body, body)) if b"stream" in body else BytesReply(body)


def lifespan_of(runtime: Runtime) -> object:
    """A lifespan that starts and stops the runtime."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await runtime.start()
        yield
        await runtime.stop()

    return lifespan


@asynccontextmanager
async def client_of(shelf: Shelf) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a FastAPI application that has routes, CORS, the kernel, and another middleware."""
    runtime = shelf.runtime(spec_of("read", read), spec_of("echo", echo))
    app = FastAPI(lifespan=lifespan_of(runtime))  # type: ignore[arg-type]

    @app.post("/items")
    async def items(request: Request) -> dict[str, str]:
        return {"got": (await request.body()).decode()}

    inner = FastAPI()
    inner.add_middleware(KernelMiddleware, runtime=runtime)
    app.mount("/api", inner)
    app.add_middleware(Stamp)
    app.add_middleware(KernelMiddleware, runtime=runtime)
    app.add_middleware(CORSMiddleware, allow_origins=["https://example.org"])
    async with serve(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client


async def test_endpoints_and_routes_live_side_by_side(shelf: Shelf) -> None:
    """Each sees its own requests whole."""
    async with client_of(shelf) as client:
        assert (await client.post("/test", content=b"one")).text == "one"
        assert (await client.post("/items", content=b"two")).json() == {"got": "two"}
        assert (await client.get("/test")).status_code == 404
        assert (await client.get("/docs")).status_code == 200


async def test_a_stream_comes_through_whole(shelf: Shelf) -> None:
    """In chunks, without a length."""
    async with client_of(shelf) as client:
        answer = await client.post("/test", content=b"stream")
        assert answer.content == b"streamstream"
        assert answer.headers["transfer-encoding"] == "chunked"


async def test_middleware_outside_the_kernel_sees_its_answers(shelf: Shelf) -> None:
    """What stands inside it sees only what passes by."""
    async with client_of(shelf) as client:
        origin = {"origin": "https://example.org"}
        ours = await client.post("/test", content=b"one", headers=origin)
        assert ours.headers["access-control-allow-origin"] == "https://example.org"
        assert "x-stamp" not in ours.headers
        assert "x-request-id" in ours.headers
        theirs = await client.post("/items", content=b"two", headers=origin)
        assert theirs.headers["access-control-allow-origin"] == "https://example.org"
        assert theirs.headers["x-stamp"] == "1"
        assert "x-request-id" not in theirs.headers


async def test_the_middleware_works_inside_a_mounted_application(shelf: Shelf) -> None:
    """Its endpoints are then under the mount."""
    async with client_of(shelf) as client:
        assert (await client.post("/api/test", content=b"one")).text == "one"
        assert (await client.post("/api/items")).status_code == 404


async def test_large_bodies_and_many_requests_on_one_connection(shelf: Shelf) -> None:
    """The limit is the plugin's; after a refusal the next connection is served."""
    async with client_of(shelf) as client:
        for number in range(20):
            assert (await client.post("/test", content=b"%d" % number)).text == str(number)
        assert (await client.post("/test", content=b"x" * 1001)).status_code == 413
        assert (await client.post("/test", content=b"x" * 1000)).status_code == 200
