"""Libraries that users have, through the kernel to a real vLLM pair, when all is well and when it is not."""

import pytest

from tests.clients.rows import LIMITS, ROWS, Row
from tests.live.crowd import COUNTED, SCRIPTED, Crowd, Made
from tests.live.pair import IDLE_SECONDS, Pair
from tests.live.subjects import Alone
from tests.live.vllm import CONTEXT
from tests.live.worker import MODEL, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200), pytest.mark.usefixtures("noted")]

PATHS = {"chat": "/v1/chat/completions", "vllm": "/v1/chat/completions"}
PATHS |= {"responses": "/v1/responses", "messages": "/v1/messages"}


def each(*cases: str) -> pytest.MarkDecorator:
    """Run a test for every library that has a case."""
    pairs = [(row, case) for row in ROWS for case in cases if case in row.cases]
    return pytest.mark.parametrize(("row", "case"), pairs, ids=[f"{row.name}, {case}" for row, case in pairs])


@each("chat", "stream", "beta")
def test_an_answer(alone: Alone, made: Made, row: Row, case: str) -> None:
    """The text, the end and the tokens are those of one worker; a stream comes in pieces."""
    known = alone.said[PATHS[row.api]]
    tokens = known.usage.get("completion_tokens", known.usage.get("output_tokens"))

    assert (made["text"], made["finish"]) == (known.text, row.finish), made
    assert made["tokens"] == tokens or (made["tokens"] is None and row.uncounted), made
    assert (made["pieces"] > 1) is (case == "stream")


@each("tool", "streamed tool")
def test_a_tool_that_is_called(made: Made, row: Row, case: str) -> None:
    """The client understands the call, and gets an answer when it tells the result."""
    assert made.get("called") in ({"city": "Paris"}, {"city": "Rome"}), made
    if case == "tool":
        assert made["text"], made
        assert made["finish"] == row.finish, made


@each("bad")
def test_a_bad_request(made: Made, row: Row) -> None:
    """The library's own error for it, in the words of the one who found it wrong."""
    assert row.bad in made["error"], made
    assert made["status"] == 400
    assert LIMITS["vllm"] in made["message"]  # vLLM calls it so over all APIs


@each("long", "long stream")
def test_a_prompt_that_is_too_long(made: Made, row: Row) -> None:
    """The library's own error for it, by which applications know that they have to be briefer; before any stream."""
    assert row.long in made["error"], made
    assert made["status"] == 400
    assert ("prompt is too long" if row.api == "messages" else "maximum context length") in made["message"]
    assert row.code is None or made["code"] == row.code


@each("models")
def test_models(made: Made) -> None:
    """The list has every model, in the shape that the library reads, and one can be asked for."""
    assert {*made["models"]} == {MODEL, SCRIPTED}, made
    assert made["model"] == MODEL


@each("count")
def test_tokens_are_counted(made: Made) -> None:
    """Every word is one, and a few are the template's."""
    assert len(COUNTED.split()) <= made["tokens"] < CONTEXT, made


@each("leave")
def test_a_client_that_leaves(everybody: Crowd, shared_pair: Pair, made: Made, case: str) -> None:
    """Nobody works for it any more, and the log says that it left."""
    assert (made["pieces"], made.get("error")) == (4, None), made
    until(lambda: everybody.left() >= sum(case in row.cases for row in ROWS), IDLE_SECONDS)
    until(everybody.served.idle, IDLE_SECONDS)
    shared_pair.settle()


@each("killed")
def test_a_worker_that_is_killed_in_mid_stream(made: Made, row: Row) -> None:
    """What came before is there, and then an error; nothing that a client could take for an end."""
    assert made.get("error"), made
    assert "broke before the answer was complete" in made["message"] or made["failed"][-1] == "response.failed", made
    assert made["text"] or not row.streams, made
    assert (made.get("finish"), made.get("tokens")) == (None, None), made
