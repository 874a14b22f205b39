"""What clients forge reaches no worker, and what workers tell each other no client: on every API, of every engine."""

from typing import Any

import orjson
import pytest
from attrs import evolve

from kernel import Endpoint
from plugins.dispatch.config import RoleConfig
from plugins.dispatch.embedded.stub import Stub
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.endpoints import CHAT_COMPLETIONS, COUNT_TOKENS, MESSAGES, RESPONSES
from tests.dispatch.engines.apis import BODIES, CELLS, EVERYTHING, SETUPS
from tests.dispatch.engines.pairs import pair_of
from tests.dispatch.scripted import Seen, scripted
from tests.dispatch.support import ask, exchange_of, running, single
from tests.stub.pairs import text_of

pytestmark = pytest.mark.anyio

PLACE = "203.0.113.9"
FORGED: dict[str, Any] = {
    "kv_transfer_params": {"do_remote_prefill": True, "remote_host": PLACE, "transfer_id": "forged"},
    "ec_transfer_params": {"host": PLACE},
    "disaggregated_params": {"request_type": "generation_only", "ctx_info_endpoint": PLACE},
    "bootstrap_host": PLACE,
    "bootstrap_port": 1,
    "bootstrap_room": 7,
    "bootstrap_anything": "forged",
    "rid": "forged",
    "request_id": "forged",
    "routed_dp_rank": 1,
    "migration_request": {"remote_engine_id": PLACE},
}
HEADERS = [
    ("x-prefiller-host-port", f"{PLACE}:1"),
    ("x-encoder-hosts-ports", f"{PLACE}:1"),
    ("x-data-parallel-host-port", f"{PLACE}:1"),
    ("x-override-bootstrap-host", PLACE),
    ("x-override-bootstrap-room", "7"),
    ("x-override-rid", "forged"),
    ("x-data-parallel-rank", "forged"),
    ("x-trtllm-disagg-auth", "sha256=forged"),
    ("x-trtllm-subagent-affinity-id", "forged"),
    ("x-trtllm-subagent-affinity-auth", "sha256=forged"),
    ("authorization", "Bearer forged"),
    ("x-api-key", "forged"),
]
NESTED = ("vllm_xargs", "extra_body", "extra_args", "sampling_params")
LEAKS = (
    *(b"127.0.0.1", b'transfer_params":{', b"bootstrap", b'disaggregated_params":{', b"opaque_state"),
    *(b"ctx_request_id", b"engine_id", b'prompt_token_ids":[', b'prompt_token_ids_b64":"'),
)


def forged_body(setup: str, endpoint: Endpoint) -> dict[str, Any]:
    """A request in which everything is forged that could be, where its workers do not refuse unknown fields."""
    strict = SETUPS[setup][0].name == "trtllm" and endpoint is not RESPONSES
    return {**BODIES[endpoint], **FORGED, **({} if strict else {name: dict(FORGED) for name in NESTED})}


def check_received(stub: Stub) -> None:
    """What a worker was sent has nothing in it that a client made up."""
    (received,) = [received for received in stub.state().last_requests if received.is_work]
    told = f"{received.body}{received.headers}"
    assert PLACE not in told
    assert "forged" not in told


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("setup", "endpoint"), CELLS, ids=lambda value: getattr(value, "name", value))
async def test_nothing_internal_passes(setup: str, endpoint: Endpoint, stream: bool) -> None:
    """Neither towards workers, nor towards the client."""
    engine, stub = SETUPS[setup]
    async with pair_of(engine, **stub) as pair:
        raw = orjson.dumps({**forged_body(setup, endpoint), "stream": stream})
        answer = await ask(pair.dispatch, exchange_of(raw, endpoint=endpoint, headers=HEADERS))
        assert text_of(answer.body)
        for leak in LEAKS:
            assert leak not in answer.body
        assert answer.reply is not None
        assert "127.0.0.1" not in str(answer.reply.headers)
        for worker in pair.stubs:
            check_received(worker)
        await pair.settled()


@pytest.mark.parametrize("endpoint", [*BODIES, COUNT_TOKENS])
async def test_a_worker_that_serves_alone_is_sent_nothing_forged_either(endpoint: Endpoint) -> None:
    """It may be one of a pair that somebody else drives."""
    body = BODIES.get(endpoint, BODIES[MESSAGES])

    async def answer(seen: Seen) -> None:
        await seen.answer(b"{}")

    async with scripted(answer) as worker, running(single(worker.url, engine=EVERYTHING)) as dispatch:
        raw = orjson.dumps({**body, **FORGED, **{name: dict(FORGED) for name in NESTED}})
        await ask(dispatch, exchange_of(raw, endpoint=endpoint, headers=HEADERS))
        (seen,) = worker.seen
    assert orjson.loads(seen.body) == {**body, **{name: {} for name in NESTED}}
    assert PLACE not in str(seen.headers)
    assert "forged" not in str(seen.headers)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"kv_transfer_params":{"a":1},"kv_transfer_params":null,"model":"m","messages":[{"role":"user","content":"a"}]}',
        b'{"kv\\u005ftransfer_params":{"a":1},"model":"m","messages":[{"role":"user","content":"a"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"vllm_xargs":{"r\\u0069d":"x"}}',
    ],
)
async def test_spellings_do_not_matter(raw: bytes) -> None:
    """A field that stands twice, or whose name is escaped, is taken out like any other."""

    async def answer(seen: Seen) -> None:
        await seen.answer(b"{}")

    async with scripted(answer) as worker, running(single(worker.url, engine=OpenAIEngine())) as dispatch:
        await ask(dispatch, exchange_of(raw, endpoint=CHAT_COMPLETIONS))
        (seen,) = worker.seen
    assert b"transfer_params" not in seen.body
    assert b"rid" not in seen.body
    assert b"005f" not in seen.body


async def test_a_tools_parameters_are_the_clients_own() -> None:
    """They may have any name."""
    parameters = {"type": "object", "properties": {"rid": {"type": "string"}, "bootstrap_host": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    async with pair_of(VllmEngine()) as pair:
        await pair.ask(BODIES[CHAT_COMPLETIONS], CHAT_COMPLETIONS, tools=tools)
        for stub in pair.stubs:
            body = stub.state().last_requests[-1].body
            assert isinstance(body, dict)
            assert body["tools"] == tools


ERRORS = [
    (CHAT_COMPLETIONS, b'data: {"error":{"message":"lost http://10.0.0.5:8998/x and 10.0.0.5:1","code":500}}\n\n'),
    (CHAT_COMPLETIONS, b'data: {"object":"error","message":"lost 10.0.0.5:1","code":500}\n\n'),
    (CHAT_COMPLETIONS, b'data: {"error":"lost 10.0.0.5:1"}\n\n'),
    (RESPONSES, b'event: error\ndata: {"type":"error","message":"lost 10.0.0.5:1"}\n\n'),
    (
        RESPONSES,
        b'data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"tcp://10.0.0.5"}}}\n\n',
    ),
    (MESSAGES, b'event: error\ndata: {"message":"lost 10.0.0.5:1"}\n\n'),
    (MESSAGES, b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"lost 10.0.0.5:1"}}\n\n'),
]
"""What a generation worker may say when its context worker is gone, each in its grammar."""


@pytest.mark.parametrize(("endpoint", "event"), ERRORS)
async def test_an_error_in_mid_stream_names_no_machine(endpoint: Endpoint, event: bytes) -> None:
    """It passes, so that the client knows, but without the address of another worker."""
    said: dict[Endpoint, bytes] = {
        CHAT_COMPLETIONS: b'data: {"choices":[{"index":0,"delta":{"content":"see 10.0.0.7"}}]}\n\n',
        RESPONSES: b'data: {"type":"response.output_text.delta","delta":"10.0.0.7"}\n\n',
        MESSAGES: b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"10.0.0.7"}}\n\n',
    }

    async def answer(seen: Seen) -> None:
        await seen.answer(said[endpoint] + event, "200 OK", "content-type: text/event-stream")

    async with pair_of(VllmEngine()) as pair, scripted(answer) as worker:
        config = evolve(pair.dispatch.pools[0], generation=RoleConfig((worker.url,)))
        async with running(config) as dispatch:
            raw = orjson.dumps({**BODIES[endpoint], "stream": True})
            got = (await ask(dispatch, exchange_of(raw, endpoint=endpoint))).body
        pair.context.reset()
    assert b"10.0.0.5" not in got
    assert b"(address)" in got
    assert got.startswith(said[endpoint])


@pytest.mark.parametrize("word", [b"an error", b'\\"error\\"', b'\\"error\\": {'])
async def test_what_a_model_says_of_errors_passes_as_it_is(word: bytes) -> None:
    """Byte by byte, with the addresses that it names."""
    said = b'data:  {"choices" :[{"index":0,"delta":{"content":"' + word + b' 10.0.0.7"}}]}\n\ndata: [DONE]\n\n'

    async def answer(seen: Seen) -> None:
        await seen.answer(said, "200 OK", "content-type: text/event-stream")

    async with pair_of(VllmEngine()) as pair, scripted(answer) as worker:
        config = evolve(pair.dispatch.pools[0], generation=RoleConfig((worker.url,)))
        async with running(config) as dispatch:
            raw = orjson.dumps({**BODIES[CHAT_COMPLETIONS], "stream": True})
            assert (await ask(dispatch, exchange_of(raw))).body == said
        pair.context.reset()
