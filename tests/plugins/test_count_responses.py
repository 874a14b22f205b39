"""The promise of `count_responses`: every answer of dispatch counts once, and a failure is none."""

import pytest

from kernel import BytesReply, ClientGone, DataReply, Rejection
from kernel.testing import build_exchange, run_chain
from plugins.count_responses import CountResponses
from plugins.encode_reply import EncodeReply
from plugins.endpoints import MODELS
from tests.plugins.support import CHAT_STREAM, Worker, counting, parsed, stream

pytestmark = pytest.mark.anyio

ONE: dict[str, float] = {"total_responses_total": 1}


async def test_every_kind_of_answer_counts() -> None:
    """Data, bytes, and a stream that has begun are responses."""
    for reply in (DataReply({}), BytesReply(b"{}"), stream(CHAT_STREAM)):
        with counting() as changes:
            await run_chain([CountResponses(), Worker(reply)], parsed())

        assert changes == ONE


async def test_answer_that_cannot_be_encoded_counts() -> None:
    """Dispatch has answered; what becomes of its answer further out is another matter."""
    with counting() as changes, pytest.raises(TypeError):
        await run_chain([EncodeReply(), CountResponses(), Worker(DataReply(object()))], parsed())

    assert changes == ONE


@pytest.mark.parametrize("error", [Rejection(404, "no"), ValueError("x"), ClientGone("left")])
async def test_failures_do_not_count(error: Exception) -> None:
    """A request that failed, or whose client left, has no response."""
    with counting() as changes, pytest.raises(type(error)):
        await run_chain([CountResponses(), Worker(error)], parsed())

    assert changes == {}


async def test_other_endpoints_do_not_count() -> None:
    """A list of models is no response of a model."""
    with counting() as changes:
        await run_chain([CountResponses(), Worker(BytesReply(b"{}"))], build_exchange(MODELS))

    assert changes == {}
