"""Links that raise: whose fault it was, what the client still gets, and that a broken answer never looks whole."""

from typing import Any

import pytest

from kernel import CLIENT_GONE, COMPLETED, FAILED, Outcome
from kernel.testing import build_exchange
from kernel.wire import write_stream
from tests.kernel.faulty_streams import FAULT, fall, fall_at, outcome_of, stream, write

pytestmark = pytest.mark.anyio


async def test_a_step_that_raises_fails_the_stream() -> None:
    """The plugin that attached it is named, not the one whose stream it is."""
    reply = stream(b"a", b"b", b"c", guarded=True)
    reply.attach(step=fall_at(b"b"))
    reply.claim("broken", fail_open=False)
    written = await write(reply)
    assert outcome_of(written) == (FAILED, FAULT, "broken")
    assert written.body == b"a[failed]"
    assert written.ended


async def test_a_step_that_always_raises_does_not_keep_the_failure_from_the_client() -> None:
    """The closing bytes of plugins further in go out without it."""
    reply = stream(b"a", b"b", guarded=True)
    reply.attach(step=fall)
    reply.claim("broken", fail_open=False)
    written = await write(reply)
    assert outcome_of(written) == (FAILED, FAULT, "broken")
    assert (written.body, written.ended) == (b"[failed]", True)


async def test_a_fail_open_step_loses_its_place(logged: list[Any]) -> None:
    """The chunk passes unchanged, the step is not called again, one line says so."""
    reply = stream(b"a", b"b", b"c")
    reply.attach(step=lambda chunk: fall() if chunk == b"b" else chunk + b"1")
    reply.claim("observer", fail_open=True)
    written = await write(reply)
    assert written.body == b"a1bc"
    assert outcome_of(written)[0] == COMPLETED
    assert [(line["event"], line["plugin"], line["went_on"]) for line in logged] == [
        ("plugin.failed", "observer", True)
    ]


async def test_a_check_that_raises_fails_the_stream() -> None:
    """In-band, not as a cut connection; its plugin is named."""
    reply = stream(b"a", guarded=True)
    reply.attach(check=fall)
    reply.claim("broken", fail_open=False)
    written = await write(reply)
    assert outcome_of(written) == (FAILED, FAULT, "broken")
    assert (written.body, written.ended) == (b"a[failed]", True)


async def test_a_fail_open_check_that_raises_is_passed_over(logged: list[Any]) -> None:
    """The stream is as whole as it was."""
    reply = stream(b"a", guarded=True)
    reply.attach(check=fall)
    reply.claim("observer", fail_open=True)
    written = await write(reply)
    assert outcome_of(written)[0] == COMPLETED
    assert (written.body, written.ended) == (b"a[completed]", True)
    assert [line["plugin"] for line in logged] == ["observer"]


async def test_an_end_that_raises_is_logged(logged: list[Any]) -> None:
    """The client has its answer already, and the other links hear the outcome."""
    heard: list[Outcome] = []
    reply = stream(b"a")
    reply.attach(end=fall)
    reply.claim("broken", fail_open=False)
    reply.attach(end=heard.append)
    written = await write(reply)
    assert (written.body, written.ended) == (b"a", True)
    assert [outcome.name for outcome in heard] == [COMPLETED]
    assert [(line["plugin"], line["at"]) for line in logged] == [("broken", "stream end")]


async def test_a_source_that_raises_an_oserror_has_failed() -> None:
    """A worker's broken connection is not the client's."""
    written = await write(stream(b"a", OSError("worker"), guarded=True))
    assert outcome_of(written)[0] == FAILED
    assert written.body == b"a[failed]"


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_client_that_cannot_be_written_to_is_gone(guarded: bool) -> None:
    """Servers say so with an OSError; it is no fault of a plugin."""
    heard: list[Outcome] = []
    reply = stream(b"a", guarded=guarded)
    reply.attach(end=heard.append)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("closed")

    await write_stream(reply, send, [], build_exchange())
    assert [outcome.name for outcome in heard] == [CLIENT_GONE]
