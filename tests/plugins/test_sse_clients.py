"""What the openai library makes of guarded Responses streams."""

import openai
import pytest
from openai.types.responses import ResponseErrorEvent, ResponseFailedEvent, ResponseStreamEvent

from plugins.slots import WorkerRejection
from plugins.sse_guard import SseGuard
from tests.plugins.streams import STREAMS, WHOLE, Recorded, answering
from tests.plugins.support import Worker, parsed, serve, stream

pytestmark = pytest.mark.anyio

GONE = WorkerRejection(502, "the worker broke off", "worker_error")
RESPONSES = [recorded for recorded in WHOLE if recorded.endpoint.name == "responses"]
each_engine = pytest.mark.parametrize("recorded", RESPONSES, ids=lambda recorded: recorded.name)


async def read(recorded: Recorded, *chunks: bytes | Exception) -> list[ResponseStreamEvent]:
    """The events that the library finds in a guarded stream."""
    written = await serve(parsed(endpoint=recorded.endpoint), SseGuard(), Worker(stream(*chunks)))
    async with answering(written.body) as url, openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
        answer = await client.responses.create(model="m", input="x", stream=True)
        return [event async for event in answer]


@each_engine
async def test_whole_stream_is_read_to_its_end(recorded: Recorded) -> None:
    """Every event is of the library's own kinds."""
    events = await read(recorded, recorded.body)

    assert len(events) == len(recorded.events)
    assert events[-1].type in ("response.completed", "response.incomplete")


@each_engine
async def test_broken_stream_is_read_to_its_error(recorded: Recorded) -> None:
    """Wherever it breaks, in an event or between two, the library finds both of the last events and trips over none."""
    for count in (1, 5, len(recorded.events) - 2):
        for part in (b"", recorded.events[count][:40], recorded.events[count][:-20], recorded.events[count][:-2]):
            *_, error, failed = await read(recorded, *recorded.events[:count], part, GONE)

            assert isinstance(error, ResponseErrorEvent)
            assert (error.code, error.message) == ("upstream_error", "the worker broke off")
            assert isinstance(failed, ResponseFailedEvent)
            assert failed.response.status == "failed"
            assert failed.response.error is not None
            assert failed.response.error.message == "the worker broke off"
            assert failed.sequence_number == error.sequence_number + 1


async def test_nothing_but_the_error() -> None:
    """A stream that breaks before it begins has an answer to tell of only in the error."""
    (error,) = await read(STREAMS["vllm responses"], GONE)

    assert isinstance(error, ResponseErrorEvent)
