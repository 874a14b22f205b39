"""The promise of `sse_guard` over the grammars of all APIs, with the streams of real engines."""

import pytest

from kernel import COMPLETED, FAILED, Exchange
from kernel.testing import Written
from plugins.slots import WorkerRejection
from plugins.sse import EventGate, MessagesGate, ResponsesGate
from plugins.sse_guard import SseGuard
from tests.plugins.streams import STREAMS, WHOLE, Recorded, split
from tests.plugins.support import Worker, parsed, serve, stream

pytestmark = pytest.mark.anyio

BROKEN = ConnectionResetError("http://10.0.0.1:8000 reset the connection")
GATES: dict[str | None, type[EventGate]] = {"openai": EventGate, "responses": ResponsesGate, "anthropic": MessagesGate}
LINE_ENDS = (b"\n", b"\r\n", b"\r")
each_stream = pytest.mark.parametrize("recorded", WHOLE, ids=lambda recorded: recorded.name)


async def guarded(recorded: Recorded, *chunks: bytes | BaseException) -> tuple[Exchange, Written]:
    """What a client gets of a stream of these chunks."""
    exchange = parsed(endpoint=recorded.endpoint)
    return exchange, await serve(exchange, SseGuard(), Worker(stream(*chunks)))


def check_error(recorded: Recorded, exchange: Exchange, tail: bytes, sent: int, begun: bool | None = None) -> None:
    """Check that `tail`, after `sent` events, is the terminal error of the stream's grammar."""
    begun = sent > 0 if begun is None else begun
    told = split(tail)
    assert b"10.0.0.1" not in tail
    match recorded.endpoint.grammar:
        case "openai":
            ((name, data),) = told
            assert (name, {*data}) == (b"", {"error"})
        case "anthropic":
            ((name, data),) = told
            assert (name, data["type"], data["request_id"]) == (b"error", "error", exchange.id)
        case "responses":
            assert [name for name, _ in told] == [b"error", b"response.failed"][: 2 if begun else 1]
            assert [data["type"] for _, data in told] == [name.decode() for name, _ in told]
            assert [data["sequence_number"] for _, data in told] == [*range(sent, sent + len(told))]


@each_stream
@pytest.mark.parametrize("end", LINE_ENDS, ids=["lf", "crlf", "cr"])
def test_whole_stream_passes_cut_anywhere(recorded: Recorded, end: bytes) -> None:
    """However it is cut in two, and however its lines end, its bytes pass and nothing else, and it is complete."""
    body = recorded.body.replace(b"\n", end)
    for cut in range(len(body) + 1):
        gate = GATES[recorded.endpoint.grammar]()

        assert gate.push(body[:cut]) + gate.push(body[cut:]) + gate.flush() == body
        assert gate.done
        assert not gate.errored


@each_stream
async def test_byte_by_byte(recorded: Recorded) -> None:
    """Also with a byte order mark and comments between the events."""
    body = b"\xef\xbb\xbf: hello\n\n" + b": still here\n\n".join(recorded.events)
    _, written = await guarded(recorded, *(body[place : place + 1] for place in range(len(body))))

    assert written.body == body
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


@each_stream
@pytest.mark.parametrize("ending", [(), (BROKEN,)], ids=["ends", "breaks"])
async def test_cut_between_events_ends_in_an_error(recorded: Recorded, ending: tuple[Exception, ...]) -> None:
    """Wherever the stream stops before its last event, what came is followed by the dialect's terminal error."""
    for count in range(len(recorded.events) - 1):
        exchange, written = await guarded(recorded, *recorded.events[:count], *ending)

        came = b"".join(recorded.events[:count])
        assert written.body.startswith(came)
        check_error(recorded, exchange, written.body[len(came) :], count)
        assert written.ended
        assert written.outcome is not None
        assert written.outcome.name == FAILED


@each_stream
@pytest.mark.parametrize("ending", [(), (BROKEN,)], ids=["ends", "breaks"])
async def test_cut_inside_an_event_ends_in_an_error(recorded: Recorded, ending: tuple[Exception, ...]) -> None:
    """A client can read everything that it gets, and never finds a clean end; only a whole last event is one."""
    body, last = recorded.body, len(recorded.body) - len(recorded.events[-1])
    data_end = len(body.rstrip(b"\n"))
    for cut in (*range(1, last, 5), *range(last, data_end)):
        exchange, written = await guarded(recorded, body[:cut], *ending)

        whole = body[:cut].count(b"\n\n")
        came = b"".join(recorded.events[:whole])
        rest = written.body.removeprefix(came)
        unfinished = body[len(came) : cut] + b"\n\n"
        closed = rest.startswith(unfinished)
        if cut < last or not closed:
            check_error(recorded, exchange, rest.removeprefix(unfinished), whole, whole > 0 or closed)
        assert written.outcome is not None
        assert written.outcome.name == FAILED or rest == unfinished


@each_stream
@pytest.mark.parametrize("lacks", [1, 2])
async def test_last_event_without_its_blank_line_is_whole(recorded: Recorded, lacks: int) -> None:
    """Some servers close right after it; the blank line is put in, so that clients read it."""
    _, written = await guarded(recorded, recorded.body[:-lacks])

    assert written.body.rstrip(b"\n") == recorded.body.rstrip(b"\n")
    assert written.body.endswith(b"\n\n")
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


@each_stream
async def test_failure_after_the_end_adds_nothing(recorded: Recorded) -> None:
    """What breaks after the terminal event is no matter to the client."""
    _, written = await guarded(recorded, recorded.body, BROKEN)

    assert written.body == recorded.body


@pytest.mark.parametrize("name", [name for name in STREAMS if "fault" in name])
async def test_what_a_real_engine_does_without_its_context_worker(name: str) -> None:
    """VLLM tells an error in Messages and chat, and breaks off in Responses: all three end in an error, and fail."""
    recorded = STREAMS[name]
    broken = (WorkerRejection(502, "the worker broke off", "worker_error"),) if "responses" in name else ()

    exchange, written = await guarded(recorded, *recorded.events, *broken)

    assert written.body.startswith(recorded.body)
    if broken:
        check_error(recorded, exchange, written.body[len(recorded.body) :], 2)
    else:
        assert written.body == recorded.body
    assert written.outcome is not None
    assert written.outcome.name == FAILED
