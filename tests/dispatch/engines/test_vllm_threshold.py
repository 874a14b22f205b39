"""vLLM workers with a shared store: the generation worker is asked first, and declines for a prompt that it has not."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub
from plugins.dispatch.engine import Request
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import MESSAGES, RESPONSES
from plugins.metrics import GENERATION
from plugins.slots import Payload
from tests.dispatch.counters import Counters
from tests.dispatch.engines.pairs import ASKED, CHAT, Pair, aggregated, pair_of, texts_of

pytestmark = pytest.mark.anyio

ENGINE = VllmEngine(connector="shared_storage", cache_hit_threshold=0.5)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A pair with an empty store."""
    async with pair_of(ENGINE, connector="shared-storage", storage_path=str(tmp_path)) as pair:
        yield pair


def thresholds_of(stub: Stub) -> list[Any]:
    """What each request for work asked for."""
    bodies = [received.body for received in stub.state().last_requests if received.is_work]
    return [body["cache_hit_threshold"] for body in bodies if isinstance(body, dict)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_the_context_phase_is_done_where_too_little_is_found(
    pair: Pair, endpoint: Any, data: Any, stream: bool
) -> None:
    """Nothing of the worker's refusal is in the answer; the next request with this prompt has one leg only."""
    expected = texts_of((await aggregated("vllm", data, endpoint)).body)
    legs = Counters(GENERATION)
    answer = await pair.ask(data, endpoint, stream=stream)
    assert texts_of(answer.body) == expected
    assert b"cache_threshold" not in answer.body
    assert (thresholds_of(pair.generation), thresholds_of(pair.context)) == ([0.5, 0], [0])
    assert legs.changes()["total"] == legs.changes()["completed"] == 2
    assert "error" not in legs.changes()
    assert texts_of((await pair.ask(data, endpoint, stream=stream)).body) == expected
    assert (thresholds_of(pair.generation), thresholds_of(pair.context)) == ([0.5, 0, 0.5], [0])
    await pair.settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["status", "die_after_headers"])
async def test_a_worker_that_fails_is_not_one_that_declines(pair: Pair, kind: str, stream: bool) -> None:
    """No context worker is asked for it."""
    pair.generation.add_fault(kind, status=429, times=-1)
    assert (await pair.ask(CHAT, stream=stream)).error.status == (429 if kind == "status" else 502)
    assert pair.context.state().requests == 0
    await pair.settled()


async def test_a_client_cannot_set_the_threshold(pair: Pair) -> None:
    """It would get a refusal for an answer."""
    answer = await pair.ask(CHAT, cache_hit_threshold=1.0)
    assert texts_of(answer.body) != [""]
    assert thresholds_of(pair.generation) == [0.5, 0]


@pytest.mark.parametrize("endpoint", [RESPONSES, MESSAGES])
def test_other_apis_do_not_know_the_field(endpoint: Any) -> None:
    """Both phases are done for them, one after the other."""
    request = Request(endpoint, Payload(b"{}", {"input": "a"}), False)
    assert ENGINE.trial(request) is None
    for role in Role:
        assert "cache_hit_threshold" not in orjson.loads(ENGINE.body(role, request, None).content)


@pytest.mark.parametrize(
    ("answer", "declined"),
    [
        (b'{"choices":[{"finish_reason": "cache_threshold"}]}', True),
        (b'data: {"choices":[{"delta":{},"finish_reason":"cache_threshold"}]}\n\n', True),
        (b'{"choices":[{"text":"\\"finish_reason\\":\\"cache_threshold\\"","finish_reason":"stop"}]}', False),
        (b'{"choices":[{"finish_reason":"length"}]}', False),
    ],
)
def test_only_the_reason_itself_is_a_refusal(answer: bytes, declined: bool) -> None:
    """Not a text that talks of it."""
    assert ENGINE.declined(answer) is declined
