"""Links that raise: whose fault it was, what the client still gets, and that a broken answer never looks whole."""

from typing import Any

import pytest

from kernel import CLIENT_GONE, COMPLETED, FAILED, Outcome, StreamReply
from kernel.testing import Written, build_exchange, read_reply, stream_of
from kernel.wire import write_stream

pytestmark = pytest.mark.anyio

FAULT = ValueError("link")


def fall(*_: object) -> Any:
    """Raise."""
    raise FAULT


def fall_at(marker: bytes) -> Any:
    """A step that raises at a chunk with this in it."""

    def step(chunk: bytes) -> bytes:
        return fall() if marker in chunk else chunk

    return step


def stream(*chunks: bytes | Exception, guarded: bool = False) -> StreamReply:
    """A stream of the plugin `source`, whose plugin `guard` says at the end how it went."""
    reply = StreamReply(stream_of(*chunks))
    reply.claim("source", fail_open=False)
    if guarded:
        reply.attach(close=lambda outcome: f"[{outcome.name}]".encode())
        reply.claim("guard", fail_open=False)
    return reply


async def write(reply: StreamReply) -> Written:
    """Write a stream to a client that reads everything."""
    return await read_reply(reply, build_exchange())


def outcome_of(written: Written) -> tuple[str, BaseException | None, str | None]:
    """Name, error and plugin of the outcome."""
    assert written.outcome is not None
    return written.outcome.name, written.outcome.error, written.outcome.plugin


async def test_a_step_that_raises_fails_the_stream() -> None:
    """The plugin that attached it is named, not the one whose stream it is."""
    reply = stream(b"a", b"b", b"c", guarded=True)
    reply.attach(step=fall_at(b"b"))
    reply.claim("broken", fail_open=False)
    written = await write(reply)
    assert outcome_of(written) == (FAILED, FAULT, "broken")
    assert written.body == b"a[failed]"
    assert written.ended


async def test_a_step_that_raises_and_nothing_to_close_is_a_cut() -> None:
    """The same as a broken source."""
    reply = stream(b"a", b"b")
    reply.attach(step=fall_at(b"b"))
    written = await write(reply)
    assert (written.chunks, written.ended) == ([b"a"], False)


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


async def test_a_close_that_raises_does_not_stop_the_others(logged: list[Any]) -> None:
    """Further closing bytes go out, and the fault is logged with its plugin."""
    reply = stream(b"a", ValueError("source"), guarded=True)
    reply.attach(close=fall)
    reply.claim("broken", fail_open=False)
    reply.attach(close=lambda _: b"!")
    written = await write(reply)
    assert written.body == b"a[failed]!"
    assert [(line["plugin"], line["at"]) for line in logged] == [("broken", "stream close")]


async def test_a_failed_stream_whose_only_close_raises_is_cut() -> None:
    """Nothing told the client of the failure, so the answer must not look whole."""
    reply = stream(b"a", ValueError("source"))
    reply.attach(close=fall)
    written = await write(reply)
    assert (written.chunks, written.ended) == ([b"a"], False)
    assert outcome_of(written)[0] == FAILED


async def test_a_stream_that_lost_its_closing_bytes_has_failed() -> None:
    """What a plugin held back is missing: the end of such an answer is not a clean one."""
    heard: list[Outcome] = []
    reply = stream(b"a")
    reply.attach(step=lambda _: b"", close=fall, end=heard.append)
    reply.claim("broken", fail_open=False)
    written = await write(reply)
    assert not written.ended
    assert outcome_of(written) == (FAILED, FAULT, "broken")
    assert len(heard) == 1


async def test_a_fail_open_close_that_raises_is_passed_over(logged: list[Any]) -> None:
    """The stream is as whole as it was."""
    reply = stream(b"a", guarded=True)
    reply.attach(close=fall)
    reply.claim("observer", fail_open=True)
    written = await write(reply)
    assert (written.body, written.ended) == (b"a[completed]", True)
    assert outcome_of(written)[0] == COMPLETED
    assert [line["plugin"] for line in logged] == ["observer"]


async def test_closing_bytes_that_a_step_cannot_take_are_not_sent() -> None:
    """A step may be there to remove what no client may see."""
    reply = stream(b"a")
    reply.attach(close=lambda _: b"secret")
    reply.claim("inner", fail_open=False)
    reply.attach(step=fall_at(b"secret"))
    reply.claim("censor", fail_open=False)
    written = await write(reply)
    assert b"secret" not in written.body
    assert not written.ended
    assert outcome_of(written) == (FAILED, FAULT, "censor")


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
