"""The standalone application: probes, further routes, and the runtime's life."""

from typing import Any

import pytest
from starlette.requests import Request as WebRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from kernel import BytesReply, CallNext, ConfigError, Exchange, Reply, build_app
from tests.kernel.stage import Stage
from tests.kernel.support import Shelf, spec_of


async def answer(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer at once."""
    return BytesReply(b"answer")


def greet(_request: WebRequest) -> PlainTextResponse:
    """An ordinary route."""
    return PlainTextResponse("hello")


@pytest.mark.anyio
async def test_the_runtime_lives_as_long_as_the_application(stage: Stage) -> None:
    """It starts before the first request and stops after the last."""
    app = build_app(stage.runtime)
    with TestClient(app) as client:
        assert sorted(stage.take_journal()) == ["start heir a", "start left a", "start right a"]
        assert client.post("/test").text == "answer"
        assert stage.journal == []
    assert sorted(stage.journal) == ["stop heir a", "stop left a", "stop right a"]


@pytest.mark.anyio
async def test_an_application_that_cannot_start_says_why(stage: Stage) -> None:
    """The server then does not serve."""
    stage.text = "plugins: {nothing: {}}"
    with pytest.raises(ConfigError, match="no such plugin"), TestClient(build_app(stage.runtime)):
        pass


@pytest.mark.anyio
async def test_health_tells_whether_requests_can_be_served(stage: Stage) -> None:
    """200 and nothing, or 503 and the reasons."""
    with TestClient(build_app(stage.runtime)) as client:
        ready = client.get("/health")
        assert (ready.status_code, ready.content) == (200, b"")
        assert client.head("/health").status_code == 200
    stage.write(left="unfit")
    with TestClient(build_app(stage.runtime)) as client:
        unready = client.get("/health")
        assert unready.status_code == 503
        assert unready.json() == {"ready": False, "reasons": ["left is unfit"]}
        assert client.get("/livez").status_code == 200


@pytest.mark.anyio
async def test_livez_and_version_answer_always(stage: Stage) -> None:
    """They ask no plugin."""
    with TestClient(build_app(stage.runtime)) as client:
        assert (client.get("/livez").status_code, client.get("/livez").content) == (200, b"")
        from importlib.metadata import version

        assert client.get("/version").json() == {"version": version("disagg-kernel")}


@pytest.mark.anyio
async def test_further_routes_are_served_beside(shelf: Shelf) -> None:
    """And what is nobody's is a 404, a wrong method a 405."""
    app: Any = build_app(shelf.runtime(spec_of("answer", answer)), [Route("/greet", greet)])
    with TestClient(app) as client:
        assert client.get("/greet").text == "hello"
        assert client.post("/test").text == "answer"
        assert client.get("/nothing").status_code == 404
        assert client.post("/greet").status_code == 405
        assert client.get("/test").status_code == 404
