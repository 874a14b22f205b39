"""Closing bytes that cannot be made or taken: a stream that lost them never looks whole."""

from typing import Any

import pytest

from kernel import COMPLETED, FAILED, Outcome
from tests.kernel.faulty_streams import FAULT, fall, fall_at, outcome_of, stream, write

pytestmark = pytest.mark.anyio


async def test_a_step_that_raises_and_nothing_to_close_is_a_cut() -> None:
    """The same as a broken source."""
    reply = stream(b"a", b"b")
    reply.attach(step=fall_at(b"b"))
    written = await write(reply)
    assert (written.chunks, written.ended) == ([b"a"], False)


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
