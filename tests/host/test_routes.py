"""What is answered beside the chain."""

import json
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from kernel import Endpoint
from plugins.host.routes import build_routes
from tests.host.support import Served, serving
from tests.host.wire import Answer, request


@pytest.fixture
def served(terminal: ModuleType) -> Any:
    """A server."""
    with serving() as server:
        yield server


def ask(served: Served, method: str, path: str) -> Answer:
    """One request on a connection of its own."""
    client = served.client().send(request(path, b"", "connection: close", method=method))
    data = client.read_all()
    head, _, body = data.partition(b"\r\n\r\n")
    if method == "HEAD":
        assert body == b""
        client.data = head.replace(b"content-length", b"x-length") + b"\r\n\r\n"
    (answer,) = client.answers()
    return answer


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "/prometheus/metrics", "/prometheus/metrics/"])
def test_metrics(served: Served, path: str) -> None:
    """Prometheus finds the metrics under either path, with a slash at the end or without."""
    answer = ask(served, "GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b"# TYPE total_requests_total counter" in answer.body
    head = ask(served, "HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["x-length"]) > 0


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/messagesx", "/echo/", "/v1%2Fmodels", "*"])
def test_unknown_path(served: Served, method: str, path: str) -> None:
    """A path that does not exist gets a 404 with OpenAI's error object, whatever the method."""
    answer = ask(served, method, path)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/json"
    if method != "HEAD":
        error = json.loads(answer.body)["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "not_found")
        assert method in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/echo", "POST"),
        ("HEAD", "/echo", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/health", "GET, HEAD"),
        ("POST", "/version", "GET, HEAD"),
        ("PUT", "/livez", "GET, HEAD"),
    ],
)
def test_wrong_method(served: Served, method: str, path: str, allow: str) -> None:
    """A path that exists tells which methods it has."""
    answer = ask(served, method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    if method != "HEAD":
        error = json.loads(answer.body)["error"]
        assert error["code"] == "method_not_allowed"
        assert path in error["message"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_greetings_are_answered(served: Served, method: str, path: str) -> None:
    """Claude Code looks at one of them before its first request."""
    answer = ask(served, method, path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == (b"" if method == "HEAD" else b"{}")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/batches", "/v1/messages/batches/b_1/results"])
def test_unknown_addresses_of_anthropics_api_have_its_errors(served: Served, path: str) -> None:
    """So that its clients can read them."""
    body = json.loads(ask(served, "GET", path).body)
    assert body["type"] == "error"
    assert body["error"]["type"] == "not_found_error"
    assert "GET" in body["error"]["message"]
    assert body["request_id"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status"), [("/things/a", 405), ("/things/a/b", 405), ("/things", 404), ("/metrics/a", 404)]
)
async def test_wrong_method_below_an_endpoint(path: str, status: int) -> None:
    """What an endpoint has below it answers to its methods; nothing else has anything below it."""
    app = Starlette(routes=build_routes([Endpoint("below", "/things/", "GET")]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://kernel") as client:
        answer = await client.post(path)

    assert answer.status_code == status
    assert answer.headers.get("allow") == ("GET" if status == 405 else None)


def test_long_and_unprintable_path(served: Served) -> None:
    """What an answer repeats of a path is short and can be printed."""
    answer = ask(served, "GET", "/%0d%0a%1b[31m%e2%80%ae%ff" + "a" * 1000)
    message = json.loads(answer.body)["error"]["message"]
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize("path", ["/health", "/livez", "/version"])
def test_own_routes_come_first(served: Served, path: str) -> None:
    """The application's own addresses are not shadowed."""
    assert ask(served, "GET", path).status == 200
