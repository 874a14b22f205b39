"""Libraries that applications are written with, through the kernel, when all is well and when it is not."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.client import Client, Library
from tests.clients.rows import ROWS, Row
from tests.clients.world import LONGEST, WAYS, World
from tests.e2e.programs import until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("noted"),
    pytest.mark.parametrize("way", WAYS),
]

TEXT = "Done: hi there."
SAYS = f"[says {TEXT}]"
CALLS = '[calls get_weather {"city": "Paris"}]'
LONG = "word " * LONGEST * 8

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(served: World, clients: Callable[[Library], Client], row: Row, case: str) -> Ask:
    """Let the library ask a model something, as the case wants it."""

    def send(model: str, prompt: str) -> dict[str, Any]:
        question: dict[str, Any] = {"url": served.kernel.url, "api": row.api, "case": case}
        return clients(row.library).ask(**question, model=model, prompt=prompt)

    return send


def each(*cases: str) -> pytest.MarkDecorator:
    """Run a test for every client that has a case."""
    pairs = [(row, case) for row in ROWS for case in cases if case in row.cases]
    return pytest.mark.parametrize(("row", "case"), pairs, ids=[f"{row.name}, {case}" for row, case in pairs])


@each("chat", "stream", "beta")
def test_an_answer(ask: Ask, row: Row, case: str, way: str) -> None:
    """Its text, how it ended and what it cost; a stream comes in pieces."""
    told = ask(way, f"Hello {SAYS}")

    assert (told["text"], told["finish"]) == (TEXT, row.finish), told
    assert told["tokens"] == 4 or (told["tokens"] is None and row.uncounted), told
    assert (told["pieces"] == 3) is (case == "stream")


@each("tool", "streamed tool")
def test_a_tool_that_is_called(ask: Ask, row: Row, case: str, way: str) -> None:
    """The client understands the call, and the model its result."""
    told = ask(way, f"{CALLS} {SAYS}")

    assert told.get("called") == {"city": "Paris"}, told
    if case == "tool":
        assert (told["text"], told["finish"]) == (TEXT, row.finish), told


@each("bad")
def test_a_bad_request(ask: Ask, row: Row, way: str) -> None:
    """The library's own error for it, which says what is wrong in words that the client used."""
    told = ask(way, SAYS)

    assert row.bad in told["error"], told
    assert told["status"] == 400
    assert row.limit in told["message"]


@each("long", "long stream")
def test_a_prompt_that_is_too_long(ask: Ask, row: Row, way: str) -> None:
    """The library's own error for it, by which applications know that they have to be briefer; before any stream."""
    told = ask(f"short-{way}", LONG)

    assert row.long in told["error"], told
    assert told["status"] == 400
    assert ("prompt is too long" if row.api == "messages" else "maximum context length") in told["message"]
    assert row.code is None or told["code"] == row.code


@each("killed")
def test_a_worker_that_is_killed_in_mid_stream(served: World, ask: Ask, row: Row, way: str) -> None:
    """What came before is there, and then an error; nothing that a client could take for an end."""
    with served.mortal(way, after=12) as model:
        told = ask(model, "Count")

    assert told.get("error"), told
    assert "broke before the answer was complete" in told["message"] or told["failed"][-1] == "response.failed", told
    assert told["text"] or not row.streams, told
    assert (told.get("finish"), told.get("tokens")) == (None, None), told


@each("leave")
def test_a_client_that_leaves(served: World, ask: Ask, row: Row, way: str) -> None:
    """Nobody works for it any more, and the log says that it left."""
    before = len(served.finished())
    told = ask(way, "Count")

    assert (told["pieces"], told.get("error")) == (4, None), told
    left = {"model": way, "outcome": "client_gone", "status": 499}
    until(lambda: any(left.items() <= line.items() for line in served.finished()[before:]))
    until(served.idle)


@each("models")
def test_models(served: World, ask: Ask, row: Row, way: str) -> None:
    """The list has every model, in the shape that the library reads, and one can be asked for."""
    told = ask(way, "")

    assert {*served.workers} <= {*told["models"]}, told
    assert told["model"] == way


@each("count")
def test_tokens_are_counted(ask: Ask, row: Row, way: str) -> None:
    """Also where workers do not count."""
    assert ask(way, LONG)["tokens"] > LONGEST
