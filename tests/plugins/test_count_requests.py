"""The promise of `count_requests`: every valid request to a model counts once, before anything may refuse it."""

import pytest

from kernel import Endpoint, Rejection
from kernel.testing import build_exchange, run_chain
from plugins.count_requests import CountRequests
from plugins.endpoints import COMPLETIONS, GENERATIVE, MODELS, RELAYED
from plugins.template_guard import TemplateGuard
from tests.plugins.support import Worker, chat, counting, parsed

pytestmark = pytest.mark.anyio

STREAMED: dict[str, float] = {"total_requests_total": 1, "stream_requests_total": 1}
WHOLE: dict[str, float] = {"total_requests_total": 1, "nonstream_requests_total": 1}


async def test_requests_are_counted_by_how_they_want_their_answer() -> None:
    """A streamed request and another count apart and in all."""
    with counting() as streamed:
        await run_chain([CountRequests()], parsed(chat(stream=True)))
    with counting() as whole:
        await run_chain([CountRequests()], parsed({"model": "m", "prompt": "x"}, endpoint=COMPLETIONS))

    assert streamed == STREAMED
    assert whole == WHOLE


async def test_requests_that_fail_later_count_too() -> None:
    """A refused template and a fault are requests."""
    with counting() as changes, pytest.raises(Rejection):
        await run_chain([CountRequests(), TemplateGuard()], parsed(chat(chat_template="x")))
    assert changes == WHOLE

    with counting() as changes, pytest.raises(ValueError, match="x"):
        await run_chain([CountRequests(), Worker(ValueError("x"))], parsed(chat(stream=True)))
    assert changes == STREAMED


@pytest.mark.parametrize("endpoint", [*GENERATIVE], ids=lambda row: row.path)
async def test_every_api_counts_alike(endpoint: Endpoint) -> None:
    """A Messages and a Responses request is one request, as any other."""
    for wanted, expected in ((True, STREAMED), (False, WHOLE)):
        with counting() as changes:
            await run_chain([CountRequests()], parsed(chat(stream=wanted), endpoint=endpoint))
        assert changes == expected


async def test_other_endpoints_do_not_count() -> None:
    """A list of models is no request to a model, nor is what is relayed."""
    with counting() as changes:
        await run_chain([CountRequests()], build_exchange(MODELS))
        for endpoint in RELAYED:
            await run_chain([CountRequests()], parsed(chat(), endpoint=endpoint))

    assert changes == {}
