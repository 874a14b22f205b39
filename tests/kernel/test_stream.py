"""A stream on its way to the client: steps, checks, closing bytes, outcome."""

from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from kernel import COMPLETED, FAILED, Exchange, StreamReply
from kernel.testing import Written, build_exchange, read_reply, stream_of
from kernel.wire import write_stream

pytestmark = pytest.mark.anyio


async def write(reply: StreamReply, exchange: Exchange | None = None) -> Written:
    """Write a stream to a client that reads everything."""
    return await read_reply(reply, exchange or build_exchange())


async def test_chunks_are_written_as_they_come() -> None:
    """Uncopied, unmerged, with an end."""
    written = await write(StreamReply(stream_of(b"a", b"bc", b"d")))
    assert written.chunks == [b"a", b"bc", b"d", b""]
    assert written.ended
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


async def test_a_stream_without_chunks_is_a_whole_answer() -> None:
    """Status and headers go out, then the end."""
    written = await write(StreamReply(stream_of()))
    assert (written.chunks, written.ended) == ([b""], True)


async def test_status_and_headers_go_out_before_the_first_chunk() -> None:
    """Whatever comes first, a client sees at once that there is an answer."""
    messages: list[MutableMapping[str, Any]] = []

    async def source() -> AsyncIterator[bytes]:
        assert [message["type"] for message in messages] == ["http.response.start"]
        yield b"x"

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    reply = StreamReply(source(), 201)
    await write_stream(reply, send, [(b"content-type", b"text/event-stream")], build_exchange())
    assert messages[0]["status"] == 201
    assert messages[0]["headers"] == [(b"content-type", b"text/event-stream")]
    assert [message.get("more_body", False) for message in messages[1:]] == [True, False]


async def test_steps_run_from_the_inside_out() -> None:
    """Each sees what the one before it made."""
    reply = StreamReply(stream_of(b"a", b"b"))
    reply.attach(step=lambda chunk: chunk + b"1")
    reply.attach()
    reply.attach(step=lambda chunk: chunk + b"2")
    assert (await write(reply)).body == b"a12b12"


async def test_a_step_may_hold_a_chunk_back() -> None:
    """Nothing is written for it; steps further out see the empty bytes and may add their own."""
    held = bytearray()

    def gather(chunk: bytes) -> bytes:
        held.extend(chunk)
        if len(held) < 3:
            return b""
        whole = bytes(held)
        held.clear()
        return whole

    reply = StreamReply(stream_of(b"a", b"b", b"c", b"d"))
    reply.attach(step=gather, close=lambda _: bytes(held))
    written = await write(reply)
    assert written.chunks == [b"abc", b"d"]
    assert written.ended


async def test_empty_chunks_of_the_source_are_not_written() -> None:
    """An empty chunk on the wire would end the answer."""
    assert (await write(StreamReply(stream_of(b"", b"a", b"")))).chunks == [b"a", b""]


async def test_closing_bytes_pass_the_steps_further_out() -> None:
    """Not the plugin's own step, and not those further in."""
    reply = StreamReply(stream_of(b"a"))
    reply.attach(step=lambda chunk: chunk + b"1", close=lambda _: b"x")
    reply.attach(step=lambda chunk: chunk + b"2", close=lambda _: b"y")
    reply.attach(step=lambda chunk: chunk + b"3")
    assert (await write(reply)).chunks == [b"a123", b"x2y3"]


async def test_a_check_may_turn_the_end_into_a_failure() -> None:
    """Its error and its plugin are the outcome's; later checks are not asked."""
    error, asked = ValueError("cut"), list[str]()

    def fine() -> None:
        asked.append("fine")

    reply = StreamReply(stream_of(b"a"))
    reply.claim("source", fail_open=False)
    reply.attach(check=fine, close=lambda outcome: outcome.name.encode())
    reply.attach(check=lambda: error)
    reply.claim("checker", fail_open=False)
    reply.attach(check=fine)
    written = await write(reply)
    assert written.outcome is not None
    assert (written.outcome.name, written.outcome.error, written.outcome.plugin) == (FAILED, error, "checker")
    assert asked == ["fine"]
    assert written.body == b"afailed"


async def test_checks_are_asked_when_the_source_ends_by_itself() -> None:
    """One that broke has failed already."""
    reply = StreamReply(stream_of(b"a", ValueError("broken")))
    reply.attach(check=lambda: pytest.fail("asked"), close=lambda _: b"!")
    assert (await write(reply)).body == b"a!"
