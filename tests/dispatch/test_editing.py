"""Events of a worker's stream that have to be changed are, wherever the stream is cut; all other bytes stay."""

import re

import pytest

from kernel import COMPLETED, Outcome
from plugins.dispatch.editing import EventEditor
from plugins.sse import events

PLAIN = b'data: {"content":"hello"}\n\n'
SECRET = b'data: {"secret":1}\n\n'
ODD = b': ping\r\n\r\nevent: x\rdata: {"secret":2}\r\r\n\nid: 3\n\ndata: {"content":"a"}\n\n'


def editor() -> EventEditor:
    """Takes out every event that has a secret."""
    return EventEditor(re.compile(b"secret"), lambda _name, _data: None)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_event_is_found_wherever_the_stream_is_cut(size: int) -> None:
    """With any line ends, and with blank lines that stand twice."""
    data, edited = PLAIN + SECRET + ODD + SECRET + PLAIN, editor()
    out = b"".join(edited.push(data[start : start + size]) for start in range(0, len(data), size))
    out += edited.close(Outcome(COMPLETED))
    assert [*events(out)] == [found for found in events(data) if b"secret" not in found[1]]
    assert b"secret" not in out
    assert b": ping\r\n\r" in out


def test_a_secret_among_many_events_costs_no_more_than_to_look_at_each() -> None:
    """A client that reads slowly lets megabytes of them come together, and nobody else is served meanwhile."""
    assert editor().push(PLAIN * 200_000 + SECRET) == PLAIN * 200_000
