"""The last resort: what a client gets when no plugin made an answer of what went wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from kernel import BytesReply, CallNext, DataReply, Exchange, KernelMiddleware, Rejection, Reply, StreamReply
from kernel.testing import stream_of
from tests.kernel.support import Request, Shelf, spec_of

pytestmark = pytest.mark.anyio

CONSTANT = '{"error":"internal server error"}'


async def nowhere(*_: object) -> None:
    """The application behind, which nothing may reach."""
    raise AssertionError("passed by")


async def ask(shelf: Shelf, end: Callable[[], Reply]) -> Request:
    """The answer to a request whose only plugin ends like this."""

    async def call(_exchange: Exchange, _call_next: CallNext) -> Reply:
        return end()

    runtime = shelf.runtime(spec_of("broken", call))
    await runtime.start()
    return await Request(KernelMiddleware(nowhere, runtime=runtime)).run()


def raises(error: BaseException) -> Callable[[], Reply]:
    """An ending that raises."""

    def end() -> Reply:
        raise error

    return end


async def test_a_fault_is_a_constant_500(shelf: Shelf, logged: list[Any]) -> None:
    """Nothing of it reaches the client; one log line names the plugin and has the cause."""
    error = ValueError("secret")
    request = await ask(shelf, raises(error))
    assert (request.status, request.text, request.ended) == (500, CONSTANT, True)
    assert request.header("content-type") == "application/json"
    assert request.header("content-length") == str(len(CONSTANT))
    assert request.header("x-request-id") is not None
    assert [(line["event"], line["plugin"], line["exc_info"]) for line in logged] == [
        ("plugin.failed", "broken", error)
    ]
    assert logged[0]["request_id"] == request.header("x-request-id")


async def test_a_rejection_says_its_own_text(shelf: Shelf, logged: list[Any]) -> None:
    """With its status and headers; it is no fault, and nothing is logged."""
    rejection = Rejection(429, "come back later: \u00e4", headers=[("retry-after", "3")])
    request = await ask(shelf, raises(rejection))
    assert (request.status, request.text) == (429, "come back later: \u00e4")
    assert request.header("retry-after") == "3"
    assert request.header("content-type") == "text/plain; charset=utf-8"
    assert logged == []


async def test_data_that_nothing_encoded_is_a_fault(shelf: Shelf, logged: list[Any]) -> None:
    """The kernel knows no encoding."""
    request = await ask(shelf, lambda: DataReply({"a": 1}))
    assert (request.status, request.text) == (500, CONSTANT)
    assert "left a reply that is not bytes yet" in str(logged[0]["exc_info"])


@pytest.mark.parametrize("value", [None, "text", b"bytes", {}])
async def test_what_is_no_reply_is_a_fault(shelf: Shelf, value: Any, logged: list[Any]) -> None:
    """Named in the log."""
    request = await ask(shelf, lambda: value)
    assert (request.status, request.text) == (500, CONSTANT)
    assert logged[0]["plugin"] == "broken"


async def test_a_rejection_that_cannot_be_sent_is_a_fault(shelf: Shelf) -> None:
    """A header that is no Latin-1 cannot go out; the client gets an answer nevertheless."""

    def decline() -> Reply:
        raise Rejection(401, "no", headers=[("www-authenticate", "realm=\u201cx\u201d")])

    request = await ask(shelf, decline)
    assert (request.status, request.text) == (500, CONSTANT)


async def test_a_fault_after_the_first_byte_sends_no_second_answer(shelf: Shelf) -> None:
    """The stream is cut."""
    request = await ask(shelf, lambda: StreamReply(stream_of(b"a", ValueError("x"))))
    assert (request.status, request.text, request.ended) == (200, "a", False)


async def test_a_reply_of_bytes_is_never_touched(shelf: Shelf) -> None:
    """Whatever its status."""
    request = await ask(shelf, lambda: BytesReply(b"\x00\xff", 503, [(b"x-a", b"1"), (b"x-a", b"2")]))
    assert (request.status, request.chunks) == (503, [b"\x00\xff"])
    assert [value for name, value in request.answer_headers if name == b"x-a"] == [b"1", b"2"]
