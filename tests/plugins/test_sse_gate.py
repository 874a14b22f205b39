"""What ends a stream, and what is no end of it: the gate that events pass one by one."""

import pytest

from plugins.slots import WorkerRejection
from plugins.sse import EventGate, boundary, holding
from tests.plugins.support import CHAT_STREAM, CONTENTS, DONE, EVENTS, chunk

LINE_ENDS = (b"\n", b"\r\n", b"\r")


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_every_cut_gives_the_same_bytes_and_only_whole_events(line_end: bytes) -> None:
    """A stream cut in two anywhere passes byte for byte, no event before its end, and is done at its end alone."""
    whole = CHAT_STREAM.replace(b"\n", line_end)
    last = whole.rindex(b"data: [DONE]")
    for cut in range(len(whole) + 1):
        gate = EventGate()

        first = gate.push(whole[:cut])

        assert whole.startswith(first)
        assert boundary(first) == len(first)
        assert gate.done == (len(first) > last)
        assert (first + gate.push(whole[cut:])).rstrip(b"\r\n") == whole.rstrip(b"\r\n")
        assert gate.done
        assert not gate.errored


def test_single_bytes_pass_as_whole_events() -> None:
    """However small the chunks, what comes out is whole events, each at once."""
    gate = EventGate()

    passed = [out for out in (gate.push(CHAT_STREAM[i : i + 1]) for i in range(len(CHAT_STREAM))) if out]

    assert tuple(passed) == EVENTS


@pytest.mark.parametrize(
    "end",
    [
        b"data: [DONE]\n\n",
        b"data:[DONE]\n\n",
        b"data: [DONE] \r\n\r\n",
        b"data: [DONE]\r\r",
        b": bye\ndata: [DONE]\n\n",
        b"event: end\ndata: [DONE]\n\n",
        b"\xef\xbb\xbfdata: [DONE]\n\n",
        b"data: {}\n\ndata: [DONE]\n\nevent: metrics\ndata: {}\n\n",
    ],
)
def test_the_end_is_known_in_every_spelling(end: bytes) -> None:
    """Spaces, comments, a name or a byte order mark round it do not hide the event that ends a stream."""
    gate = EventGate()

    assert gate.push(end) == end
    assert gate.done


@pytest.mark.parametrize(
    "text",
    [
        *(chunk(content) for content in CONTENTS),
        b": data: [DONE]\n\n",
        b"id: [DONE]\n\n",
        b"data: [DONE]x\n\n",
        b"data: x\ndata: [DONE]\n\n",
        b"xdata: [DONE]\n\n",
    ],
)
def test_text_is_never_taken_for_the_end(text: bytes) -> None:
    """The words of the end inside text, comments, other fields or more data end nothing."""
    gate = EventGate()
    gate.push(text)

    assert not gate.done
    assert not gate.errored


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"message":"m","code":500}}\n\n',
        b'data:{"id":"c-1","error":{"message":"m"}}\r\n\r\n',
        b'data: {"error": "text"}\n\n',
        b'data: {"object":"error","error":{"message":"m"}}\n\n',
        b'event: error\ndata: {"message":"m"}\n\n',
        b"event: error\ndata: not json\n\n",
        b'data: {"choices":[]}\n\ndata: {"error":{"message":"m"}}\n\ndata: [DONE]\n\n',
    ],
)
def test_an_error_event_is_known_and_passes(event: bytes) -> None:
    """An error object in the data, or an event of that name, counts as an error and reaches the client unchanged."""
    gate = EventGate()

    assert gate.push(event) == event
    assert gate.errored


@pytest.mark.parametrize(
    "data",
    [
        b'{"error":null,"choices":[]}',
        b'{"error":{}}',
        b'{"choices":[{"delta":{"content":"\\"error\\": {}"}}]}',
        b'{"choices":[{"error":{"message":"m"}}]}',
        b'["error"]',
        b'"error"',
        b"error",
    ],
)
def test_what_is_no_error_object_is_no_error(data: bytes) -> None:
    """An empty error, one deeper inside or in text, and data that is no object are parts of the answer."""
    gate = EventGate()
    event = b"data: " + data + b"\n\n"

    assert gate.push(event) == event
    assert not gate.errored


def test_a_flat_error_is_put_into_the_shape_of_the_api() -> None:
    """The flat error object of TensorRT-LLM and SGLang becomes OpenAI's, which a client's library understands."""
    gate = EventGate()

    passed = gate.push(chunk("a") + b'data: {"object":"error","message":"m","code":400}\n\n')

    assert passed == chunk("a") + b'data: {"error":{"object":"error","message":"m","code":400}}\n\n'
    assert gate.errored


@pytest.mark.parametrize("rest", [b"data: [DONE]", b"data:[DONE]\n", b"data: [DONE]\r\n", b": bye\ndata: [DONE]"])
def test_an_end_without_its_blank_line_is_completed(rest: bytes) -> None:
    """A worker that closes right behind its last line has ended its stream well."""
    gate = EventGate()
    assert gate.push(rest) == b""

    assert gate.ends_done()
    assert gate.flush() == DONE
    assert gate.done
    assert gate.flush() == b""


@pytest.mark.parametrize("rest", [b"", b"data: [DON", chunk("x")[:-1], b"data: {}\ndata: [DONE]"])
def test_an_event_that_was_cut_is_dropped(rest: bytes) -> None:
    """What is left of an event cannot be read, and is not an end."""
    gate = EventGate()
    gate.push(rest)

    assert not gate.ends_done()
    assert gate.flush() == b""
    assert not gate.done


def test_a_huge_event_passes_whole() -> None:
    """Megabytes in one event, in small chunks, pass; the time for it does not grow with their square."""
    gate = EventGate()
    text = b"x" * 1024
    event = b"data: " + text * 8192 + b"\n\n"
    parts = [event[i : i + 1024] for i in range(0, len(event), 1024)]

    assert b"".join(gate.push(part) for part in parts) == event


def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker cannot fill the memory with an event: beyond a limit it is the worker's fault."""
    monkeypatch.setattr(holding, "HELD_LIMIT", 100)
    gate = EventGate()
    gate.push(b"data: " + b"x" * 90)

    with pytest.raises(WorkerRejection, match="too large") as refused:
        gate.push(b"x" * 10)

    assert refused.value.status == 502
