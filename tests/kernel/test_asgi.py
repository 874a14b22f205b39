"""The middleware: which requests are its own, and that every exchange is released, whatever its ending."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from kernel import (
    BytesReply,
    CallNext,
    Endpoint,
    Exchange,
    KernelError,
    KernelMiddleware,
    Reply,
)
from tests.kernel.support import Call, Request, Shelf, spec_of

pytestmark = pytest.mark.anyio


async def other(scope: MutableMapping[str, Any], _receive: Any, send: Any) -> None:
    """The application behind the middleware."""
    if scope["type"] != "http":
        await send({"type": scope["type"]})
        return
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"passed by"})


async def answer(exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer with the endpoint's name."""
    return BytesReply(exchange.endpoint.name.encode())


async def app_of(shelf: Shelf, call: Call = answer, **options: Any) -> KernelMiddleware:
    """The middleware around one plugin."""
    runtime = shelf.runtime(spec_of("answer", call), **options)
    await runtime.start()
    return KernelMiddleware(other, runtime=runtime)


async def test_a_request_to_an_endpoint_goes_through_the_chain(shelf: Shelf) -> None:
    """With the status, headers and body of its reply, and its length."""
    request = await Request(await app_of(shelf)).run()
    assert (request.status, request.text, request.ended) == (200, "test", True)
    assert request.header("content-length") == "4"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/test"), ("POST", "/"), ("POST", "/test/"), ("POST", "/tests"), ("POST", "/TEST"), ("POST", "//test")],
)
async def test_any_other_request_passes_by(shelf: Shelf, method: str, path: str) -> None:
    """Method and path have to be the endpoint's exactly."""
    request = await Request(await app_of(shelf), path, method=method).run()
    assert (request.status, request.text) == (418, "passed by")
    assert request.header("x-request-id") is None


async def test_endpoints_are_told_apart_by_path_and_method(shelf: Shelf) -> None:
    """The exchange says which one was asked for."""
    endpoints = (Endpoint("read", "/thing", "GET"), Endpoint("write", "/thing"), Endpoint("else", "/else"))
    app = await app_of(shelf, endpoints=endpoints)
    assert (await Request(app, "/thing", method="GET").run()).text == "read"
    assert (await Request(app, "/thing").run()).text == "write"
    assert (await Request(app, "/else").run()).text == "else"


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/things/a", "below"),
        ("GET", "/things/a/b/c", "below"),
        ("GET", "/things/", "below"),
        ("GET", "/things/known", "exact"),
        ("GET", "/things", None),
        ("GET", "/thingsa", None),
        ("GET", "/x/things/a", None),
        ("POST", "/things/a", None),
        ("GET", "/exact/a", None),
    ],
)
async def test_a_path_that_ends_in_a_slash_has_all_below_it(
    shelf: Shelf, method: str, path: str, found: str | None
) -> None:
    """An endpoint of exactly this path goes first; others have nothing below them."""
    named = (("below", "/things/"), ("exact", "/things/known"), ("plain", "/exact"))
    endpoints = tuple(Endpoint(name, address, "GET") for name, address in named)
    request = await Request(await app_of(shelf, endpoints=endpoints), path, method=method).run()
    assert (request.text if request.status == 200 else None) == found


@pytest.mark.parametrize("root_path", ["", "/api", "/api/v2", "/test"])
async def test_endpoints_are_found_under_a_mount(shelf: Shelf, root_path: str) -> None:
    """The path of a mounted application begins with the mount's."""
    request = await Request(await app_of(shelf), root_path=root_path).run()
    assert request.text == "test"


async def test_a_mount_is_a_whole_segment(shelf: Shelf) -> None:
    """`/apitest` is not `/test` under `/api`, as Starlette has it too."""
    app = await app_of(shelf)
    request = Request(app)
    scope = {"type": "http", "method": "POST", "path": "/apitest", "root_path": "/api", "headers": []}
    await app(scope, request.inbox.get, request._take)
    assert request.status == 418


async def test_a_proxys_prefix_that_the_server_did_not_keep_is_no_matter(shelf: Shelf) -> None:
    """Some servers set the root path and leave it out of the path."""
    app = await app_of(shelf)
    request = Request(app)
    scope = {"type": "http", "method": "POST", "path": "/test", "root_path": "/api", "headers": []}
    await app(scope, request.inbox.get, request._take)
    assert request.text == "test"


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_scopes_that_are_no_requests_pass_by(shelf: Shelf, kind: str) -> None:
    """They have no method, and a lifespan no path."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = await app_of(shelf)
    await app({"type": kind, "path": "/test", "headers": []} if kind == "websocket" else {"type": kind}, None, send)  # type: ignore[arg-type]
    assert sent == [{"type": kind}]


async def test_the_request_id_goes_out_with_every_answer(shelf: Shelf) -> None:
    """The client's own, or a new one."""
    app = await app_of(shelf)
    given = await Request(app, headers=(("x-request-id", "mine"),)).run()
    assert given.header("x-request-id") == "mine"
    made = await Request(app).run()
    assert len(made.header("x-request-id") or "") == 32


async def test_a_runtime_that_was_not_started_serves_nothing(shelf: Shelf) -> None:
    """It says so; other requests pass by."""
    app = KernelMiddleware(other, runtime=shelf.runtime(spec_of("answer", answer)))
    assert (await Request(app, "/other").run()).status == 418
    with pytest.raises(KernelError, match="the runtime "):
        await Request(app).run()
