"""The promise of `error_envelope` over all APIs: an error has the shape that the caller's own library reads."""

from typing import Any

import orjson
import pytest

from kernel import BytesReply, Endpoint, Exchange, Rejection, Reply, StreamReply
from kernel.testing import build_exchange, read_reply, run_chain, stream_of
from plugins.endpoints import ENDPOINTS, MODELS, ONE_MODEL
from plugins.error_envelope import ErrorEnvelope
from plugins.slots import WorkerRejection
from tests.plugins.support import Worker

pytestmark = pytest.mark.anyio

LENGTH = WorkerRejection(422, "the context is full", "context_length_exceeded", kind="BadRequestError")
GONE = Rejection(503, "no worker is ready", "no_worker_ready", (("retry-after", "5"),))
ANTHROPICS = ("messages", "count_tokens")


async def answer(endpoint: Endpoint, worker: Worker, **options: Any) -> tuple[Exchange, Reply, Any]:
    """The exchange, the reply, and what its body says."""
    envelope = options.pop("envelope", "openai")
    exchange = build_exchange(endpoint, **options)
    reply = await run_chain([ErrorEnvelope(envelope=envelope), worker], exchange)
    return exchange, reply, orjson.loads((await read_reply(reply, exchange)).body or b"null")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
async def test_not_ready(endpoint: Endpoint) -> None:
    """A 503 says when to come back, in every dialect."""
    exchange, reply, told = await answer(endpoint, Worker(GONE))

    assert reply.status == 503
    assert (b"retry-after", b"5") in reply.headers
    if endpoint.name in ANTHROPICS:
        error = {"type": "overloaded_error", "message": "no worker is ready"}
        assert told == {"type": "error", "error": error, "request_id": exchange.id}
        assert (b"request-id", exchange.id.encode()) in reply.headers
    else:
        code = {"type": "server_error", "param": None, "code": "no_worker_ready"}
        assert told == {"error": {"message": "no worker is ready", **code}}
        assert b"request-id" not in dict(reply.headers)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
async def test_prompt_that_is_too_long(endpoint: Endpoint) -> None:
    """OpenAI's clients look at the code, Anthropic's at the status, the type and the first words."""
    _, reply, told = await answer(endpoint, Worker(LENGTH))

    if endpoint.name in ANTHROPICS:
        assert reply.status == 400
        assert told["error"] == {"type": "invalid_request_error", "message": "prompt is too long: the context is full"}
    else:
        assert reply.status == 422
        assert told["error"]["code"] == "context_length_exceeded"
        assert told["error"]["message"] == "the context is full"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
async def test_trtllms_shapes(endpoint: Endpoint) -> None:
    """As TensorRT-LLM's frontend has them: two types for Messages, a detail for the rest."""
    _, reply, told = await answer(endpoint, Worker(GONE), envelope="trtllm")

    assert reply.status == 503
    anthropic = {"type": "error", "error": {"type": "api_error", "message": "no worker is ready"}}
    assert told == (anthropic if endpoint.name in ANTHROPICS else {"detail": "no worker is ready"})


@pytest.mark.parametrize("endpoint", [MODELS, ONE_MODEL], ids=lambda endpoint: endpoint.name)
async def test_models_are_told_as_their_caller_knows_them(endpoint: Endpoint) -> None:
    """Who sends Anthropic's version gets Anthropic's errors."""
    missing = Rejection(404, "there is no such model", "model_not_found")

    _, reply, told = await answer(endpoint, Worker(missing), headers=[("Anthropic-Version", "2026-10-21")])

    assert (reply.status, told["error"]["type"]) == (404, "not_found_error")
    _, reply, told = await answer(endpoint, Worker(missing))
    assert (reply.status, told["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropics_clients_find_the_requests_id(endpoint: Endpoint, streamed: bool) -> None:
    """Also where all went well; it is the client's own where it sent one."""
    good = StreamReply(stream_of(b"null")) if streamed else BytesReply(b"null")

    _, reply, _ = await answer(endpoint, Worker(good), headers=[("x-request-id", "r-1")])

    assert ((b"request-id", b"r-1") in reply.headers) == (endpoint.name in ANTHROPICS)
