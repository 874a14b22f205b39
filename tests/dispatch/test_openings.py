"""What a stream says before its first word: an error there is a status, in every grammar."""

from collections.abc import Mapping

import orjson
import pytest

from plugins.dispatch.answers import check_first
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.headers import Traits
from plugins.dispatch.opening import Opening
from plugins.slots import WorkerRejection

CREATED = (
    b'event: response.created\ndata: {"type":"response.created","response":{"status":"in_progress","error":null}}\n\n'
    b'event: response.in_progress\ndata: {"type":"response.in_progress","response":{"error":null}}\n\n'
)
STARTED = (
    b'event: message_start\ndata: {"type":"message_start","message":{"content":[]}}\n\n'
    b'event: ping\ndata: {"type":"ping"}\n\n'
)
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
FAILED = b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":%s}}\n\n'


class Chunks:
    """An answer whose body comes in these pieces."""

    status = 200

    def __init__(self, *chunks: bytes) -> None:
        self.headers: Mapping[str, str] = {"retry-after": "7", "x-secret": "1"}
        self.traits = Traits.of(self.headers)
        self._chunks = [*chunks, b""]

    async def chunk(self) -> bytes:
        """The next piece."""
        return self._chunks.pop(0)

    def rest(self) -> bytes | None:
        """Nobody asks."""

    def close(self) -> None:
        """Nothing is open."""


ERRORS = [
    (CREATED + FAILED % b'{"code":"server_error","message":"boom"}', 500, "server_error"),
    (CREATED + FAILED % b'{"code":"rate_limit_exceeded","message":"boom"}', 429, "rate_limit_exceeded"),
    (CREATED + FAILED % b'{"code":"context_length_exceeded","message":"boom"}', 400, "context_length_exceeded"),
    (CREATED + b'event: error\ndata: {"type":"error","code":"server_error","message":"boom"}\n\n', 500, "server_error"),
    (CREATED + b'data: {"type":"error","code":null,"message":"boom","sequence_number":2}\n\n', 500, None),
    (
        STARTED + b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"boom"}}\n\n',
        503,
        None,
    ),
    (STARTED + b'data: {"type":"error","error":{"type":"invalid_request_error","message":"boom"}}\n\n', 400, None),
    (STARTED + b'data: {"type":"error","error":{"type":"internal_error","message":"boom"}}\n\n', 500, None),
    (ROLE + b'data: {"error":{"message":"boom","type":"InternalServerError","code":500}}\n\n', 500, None),
    (ROLE + b'data: {"error":{"message":"boom","code":404}}\n\n', 404, None),
    (b'data: {"object":"error","message":"boom","code":503}\n\n', 503, None),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("stream", "status", "code"), ERRORS)
async def test_an_error_is_a_status_wherever_the_stream_is_cut(stream: bytes, status: int, code: str | None) -> None:
    """With the worker's words, and of its headers those about limits."""
    for cut in range(1, len(stream), 5):
        with pytest.raises(WorkerRejection) as caught:
            await Opening().read(Chunks(stream[:cut], stream[cut:]))
        assert (caught.value.status, caught.value.message, caught.value.code) == (status, "boom", code)
        assert caught.value.headers == (("retry-after", "7"),)


@pytest.mark.parametrize(("stream", "status", "code"), ERRORS)
def test_what_comes_in_one_piece_is_looked_at_without_a_handoff_too(
    stream: bytes, status: int, code: str | None
) -> None:
    """A worker that serves alone opens its streams in the same way."""
    with pytest.raises(WorkerRejection) as caught:
        check_first(Chunks(), stream)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("opening", "word"),
    [
        (CREATED, b'event: response.output_item.added\ndata: {"type":"response.output_item.added","item":{}}\n\n'),
        (CREATED, b'event: response.completed\ndata: {"type":"response.completed","response":{"error":null}}\n\n'),
        (CREATED, b'data: {"type":"response.incomplete","response":{"error":null}}\n\n'),
        (STARTED, b'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n'),
        (STARTED, b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'),
        (ROLE, b'data: {"choices":[{"index":0,"delta":{"content":"error"}}]}\n\n'),
        (ROLE, b"data: [DONE]\n\n"),
    ],
)
async def test_a_stream_that_says_something_begins_there(opening: bytes, word: bytes) -> None:
    """All that came before goes to the client with it; what would come later is not waited for."""
    later = b'data: {"error":{"message":"too late","code":500}}\n\n'
    assert await Opening().read(Chunks(opening, word, later)) == opening + word
    check_first(Chunks(), opening + word + later)
    with pytest.raises(MalformedFault):
        await Opening().read(Chunks(opening))


@pytest.mark.parametrize(
    "value", [[], 7, "x", {"response": 7, "type": "response.failed"}, {"error": "boom"}, {"error": 7}]
)
def test_nonsense_is_an_error_or_passes(value: object) -> None:
    """It is never a fault of the kernel."""
    event = b"data: " + orjson.dumps(value) + b" \n\ndata: error\n\n"
    if isinstance(value, dict):
        with pytest.raises(WorkerRejection) as caught:
            check_first(Chunks(), event)
        assert caught.value.status == 500
    else:
        check_first(Chunks(), event)
