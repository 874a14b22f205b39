"""What is known of server-sent events as bytes: where they end, and what they say."""

import pytest

from plugins.sse import boundary, events

LINE_ENDS = (b"\n", b"\r\n", b"\r")


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"data: x", 0),
        (b"data: x\n", 0),
        (b"data: x\n\n", 9),
        (b"data: x\n\ndata: y\n", 9),
        (b"data: x\r\n", 0),
        (b"data: x\r\n\r\n", 11),
        (b"data: x\r\n\r\nrest", 11),
        (b"data: x\r\n\r", 10),
        (b"data: x\r\r", 9),
        (b"data: x\r", 0),
        (b"data: x\n\r", 9),
        (b"data: x\r\n\n", 10),
        (b"data: x\ndata: y\r\ndata: z\r", 0),
        (b"\n\n\n\nx", 4),
    ],
)
def test_boundary_is_behind_the_last_blank_line(data: bytes, end: int) -> None:
    """A blank line ends an event, whichever of LF, CRLF and CR end its lines; a CRLF alone is one line end."""
    assert boundary(data) == end


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_boundary_looks_across_its_start(line_end: bytes) -> None:
    """A blank line that is cut anywhere is found when the search goes on where the first part ended."""
    whole = line_end.join((b"data: x", b"", b""))
    for cut in range(len(whole)):
        assert boundary(whole, cut) == len(whole) or boundary(whole[:cut]) > 0


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_events_have_names_and_joined_data(line_end: bytes) -> None:
    """Data lines are joined, one space after the colon is dropped, and comments and other fields say nothing."""
    fields = b": ping|id: 7|event: delta|data: a|data:b|data:  c|data||: lone||"

    assert list(events(fields.replace(b"|", line_end))) == [(b"delta", b"a\nb\n c\n")]


def test_events_begin_behind_a_byte_order_mark() -> None:
    """A byte order mark before the first field belongs to no field's name."""
    assert list(events(b"\xef\xbb\xbfdata: x\n\n")) == [(b"", b"x")]


def test_an_event_without_its_blank_line_is_none() -> None:
    """What is not ended by a blank line is not an event yet."""
    assert list(events(b"data: x\n\ndata: y\n")) == [(b"", b"x")]
