"""The promise of `sse_guard`: a stream ends with its terminal event or with an error that the client understands."""

import openai
import orjson
import pytest

from kernel import CLIENT_GONE, COMPLETED, FAILED, BytesReply, Rejection
from kernel.testing import Written, build_exchange
from plugins.endpoints import COMPLETIONS, MODELS
from plugins.slots import WorkerRejection
from plugins.sse_guard import SseGuard
from tests.plugins.streams import answering
from tests.plugins.support import CHAT_STREAM, DONE, EVENTS, Worker, chunk, left_in_stream, parsed, serve, stream

pytestmark = pytest.mark.anyio

BROKEN = ConnectionResetError("http://10.0.0.1:8000 reset the connection")
ERROR_EVENT = b'data: {"error":{"message":"out of memory","type":"server_error","code":500}}\n\n'


async def guarded(*chunks: bytes | BaseException) -> Written:
    """What a client gets of a stream of these chunks."""
    return await serve(parsed(), SseGuard(), Worker(stream(*chunks)))


def error_of(event: bytes) -> dict[str, str]:
    """The error object of an event that is one."""
    error: dict[str, str] = orjson.loads(event.removeprefix(b"data: "))["error"]
    return error


async def test_whole_stream_passes_cut_anywhere() -> None:
    """However a whole stream is cut in two, the client gets its bytes and nothing else."""
    for cut in range(len(CHAT_STREAM) + 1):
        written = await guarded(CHAT_STREAM[:cut], CHAT_STREAM[cut:])

        assert written.body == CHAT_STREAM
        assert written.ended
        assert written.outcome is not None
        assert written.outcome.name == COMPLETED


@pytest.mark.parametrize("ending", [(), (BROKEN,)], ids=["ends", "breaks"])
async def test_stream_that_ends_anywhere_never_ends_unsaid(ending: tuple[Exception, ...]) -> None:
    """Wherever a worker's stream stops, the client gets whole events, then one error event; no cut, no clean end."""
    for cut in range(CHAT_STREAM.index(DONE) + len(DONE) - 2):
        written = await guarded(CHAT_STREAM[:cut], *ending)

        *passed, last, rest = written.body.split(b"\n\n")
        assert rest == b""
        assert [event + b"\n\n" for event in passed] == [*EVENTS[: len(passed)]]
        assert error_of(last)["type"] == "server_error"
        assert b"10.0.0.1" not in last
        assert written.ended
        assert written.outcome is not None
        assert written.outcome.name == FAILED


@pytest.mark.parametrize("missing", [1, 2])
async def test_end_that_lacks_its_blank_line_is_completed(missing: int) -> None:
    """A terminal event whose blank line was not sent counts, and gets one."""
    written = await guarded(CHAT_STREAM[:-missing])

    assert written.body == CHAT_STREAM
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


@pytest.mark.parametrize("ending", [(), (BROKEN,)], ids=["ends", "breaks"])
async def test_nothing_follows_the_end(ending: tuple[Exception, ...]) -> None:
    """Whatever happens behind the terminal event, nothing is added to it."""
    assert (await guarded(CHAT_STREAM, *ending)).body == CHAT_STREAM


@pytest.mark.parametrize("rest", [(DONE,), (), (BROKEN,), (b"data: [DO",)], ids=["done", "ends", "breaks", "cut"])
async def test_workers_own_error_stands_alone(rest: tuple[bytes | Exception, ...]) -> None:
    """A stream in which the worker told of an error has failed, with its words and no second error."""
    written = await guarded(EVENTS[0], ERROR_EVENT, *rest)

    told = EVENTS[0] + ERROR_EVENT
    assert written.body in {told, told + DONE}
    assert written.outcome is not None
    assert written.outcome.name == FAILED


async def test_shutdown_is_told_in_the_stream() -> None:
    """A rejection that interrupts a stream has its message in the error event."""
    stopping = Rejection(503, "the server is shutting down", "shutting_down")

    written = await guarded(EVENTS[0], EVENTS[1][:20], stopping)

    assert written.body.startswith(EVENTS[0] + b"data: {")
    told = {"message": "the server is shutting down", "type": "server_error", "param": None, "code": "shutting_down"}
    assert error_of(written.body[len(EVENTS[0]) :]) == told


async def test_faults_stay_internal() -> None:
    """An exception that nobody meant is told without its text."""
    written = await guarded(EVENTS[0], ValueError("secret of 10.0.0.1"))

    assert error_of(written.body[len(EVENTS[0]) :])["message"] == "internal server error"


async def test_broken_worker_is_told_apart_from_an_early_end() -> None:
    """An early end has a code of its own, and a worker's rejection keeps its message."""
    early = await guarded(EVENTS[0])
    broken = await guarded(EVENTS[0], WorkerRejection(504, "the worker sent nothing for 5 s", "worker_timeout"))

    assert error_of(early.body[len(EVENTS[0]) :])["code"] == "stream_incomplete"
    assert error_of(broken.body[len(EVENTS[0]) :])["code"] == "worker_timeout"


async def test_client_that_left_gets_nothing_more() -> None:
    """Nothing is written to a client that hung up."""
    exchange = parsed()

    written = await serve(exchange, SseGuard(), Worker(left_in_stream(exchange, EVENTS[0])))

    assert written.body == EVENTS[0]
    assert written.outcome is not None
    assert written.outcome.name == CLIENT_GONE


async def test_other_replies_and_endpoints_pass() -> None:
    """What is no stream of a model's answer is none of its business."""
    assert (await serve(parsed(), SseGuard(), Worker(BytesReply(b"{}")))).body == b"{}"
    models = build_exchange(MODELS)
    assert (await serve(models, SseGuard(), Worker(stream(b"data: x\n")))).body == b"data: x\n"


async def read_with_sdk(body: bytes) -> str:
    """The text that the openai library reads from a stream; raises what it raises."""
    async with answering(body) as url, openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Say hello"}], stream=True
        )
        return "".join([part.choices[0].delta.content or "" async for part in answer])


async def test_openai_library_reads_a_guarded_stream() -> None:
    """The library reads all of a whole stream's text."""
    text = await read_with_sdk((await guarded(CHAT_STREAM)).body)

    assert text.startswith("Hello, [DONE] is not")


@pytest.mark.parametrize(
    "chunks",
    [
        (CHAT_STREAM[:200],),
        (CHAT_STREAM[:200], BROKEN),
        (EVENTS[0], ERROR_EVENT, DONE),
        (EVENTS[0], b'data: {"object":"error","message":"out of memory","code":500}\n\n', DONE),
    ],
    ids=["ends", "breaks", "error", "flat error"],
)
async def test_openai_library_raises_for_a_broken_stream(chunks: tuple[bytes | Exception, ...]) -> None:
    """The library raises its `APIError` for every broken stream, never a connection error and never nothing."""
    body = (await guarded(*chunks)).body

    with pytest.raises(openai.APIError) as raised:
        await read_with_sdk(body)

    assert not isinstance(raised.value, openai.APIConnectionError)


async def test_completions_are_guarded_too() -> None:
    """A chunk without its end breaks the streams of every endpoint that generates."""
    written = await serve(parsed(endpoint=COMPLETIONS), SseGuard(), Worker(stream(chunk("x")[:-2])))

    assert error_of(written.body)["code"] == "stream_incomplete"
