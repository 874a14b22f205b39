"""What is particular to SGLang's pairs: rooms, where they are, and telling the other half to stop."""

import asyncio
from typing import Any

import orjson
import pytest
from attrs import define, evolve

from kernel import ClientGone, Endpoint, Secret
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.embedded.stub import run_stub
from plugins.dispatch.engine import Handoff, Partner, Request
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Role, Worker
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES
from plugins.metrics import ABORTS
from plugins.slots import Payload
from tests.dispatch.engines.apis import BODIES
from tests.dispatch.engines.pairs import CHAT, COMPLETION, Pair, aggregated, config_of, pair_of, texts_of
from tests.dispatch.support import ask, exchange_of, running

pytestmark = pytest.mark.anyio


def bodies(pair: Pair) -> list[Any]:
    """What both workers were sent for work."""
    return [received.body for stub in pair.stubs for received in stub.state().last_requests if received.is_work]


def test_an_admin_key_can_be_sent() -> None:
    """Else a worker that is to stop would never hear of it."""
    with pytest.raises(ValueError, match="printable ASCII"):
        SglangEngine(admin_key=Secret("a\nb"))


async def test_both_workers_get_the_same_room() -> None:
    """An exact integer of 63 bits, another one each time, and an id of the kernel's own."""
    async with pair_of(SglangEngine()) as pair:
        for _ in range(2):
            await pair.ask(CHAT)
        context_one, context_two, generation_one, generation_two = bodies(pair)
    for context, generation in ((context_one, generation_one), (context_two, generation_two)):
        assert type(context["bootstrap_room"]) is int
        assert 0 <= context["bootstrap_room"] < 2**63
        shared = ("bootstrap_room", "bootstrap_host", "bootstrap_port", "rid", "messages", "max_tokens")
        assert {name: context[name] for name in shared} == {name: generation[name] for name in shared}
    assert context_one["bootstrap_room"] != context_two["bootstrap_room"]
    assert context_one["rid"] != context_two["rid"]


@pytest.mark.parametrize("endpoint", BODIES)
async def test_both_workers_know_a_request_by_the_id_that_stops_it(endpoint: Endpoint) -> None:
    """Each API has its own place for it, and a client has none."""
    engine, data = SglangEngine(), BODIES[endpoint]
    request = Request(endpoint, Payload(orjson.dumps(data), data), stream=False)
    handoff = engine.meet(request, Partner("http://127.0.0.1:1"))
    wanted = orjson.loads(engine.abort(Role.CONTEXT, handoff).body)["rid"]
    for role in Role:
        body = engine.body(role, request, handoff)
        if endpoint is MESSAGES:
            assert body.headers == {"x-override-rid": wanted}
        else:
            assert orjson.loads(body.content)["request_id" if endpoint is RESPONSES else "rid"] == wanted
    assert wanted.startswith("resp_") is (endpoint is RESPONSES)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choices", [1, 2])
async def test_a_batch_of_prompts_has_a_room_for_each(choices: int, stream: bool) -> None:
    """In lists, or in consecutive numbers where a list would be repeated."""
    prompts = [COMPLETION["prompt"], "Another one", "A third"]
    extra = {"prompt": prompts, "n": choices, "stream": stream}
    async with pair_of(SglangEngine()) as pair:
        answer = await pair.ask(COMPLETION, COMPLETIONS, **extra)
        expected = await aggregated("sglang", COMPLETION, COMPLETIONS, **extra)
        assert texts_of(answer.body) == texts_of(expected.body)
        assert isinstance(bodies(pair)[0]["bootstrap_room"], list) is (choices == 1)
        await pair.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_worker_that_declines_stops_the_other_half(stream: bool) -> None:
    """Its status and words are the client's, and the generation worker is told to stop at once."""
    async with pair_of(SglangEngine(admin_key=Secret("k")), admin_key="k") as pair:
        pair.context.add_fault("status", status=400, body={"object": "error", "message": "too long", "code": 400})
        error = (await pair.ask(CHAT, stream=stream)).error
        assert (error.status, error.message) == (400, "too long")
        await pair.settled()
        await pair.generation.until(lambda state: state.requests in (0, state.aborts, state.aborted))


@pytest.mark.parametrize("key", ["k", "wrong", None])
async def test_the_admin_key_decides_whether_a_worker_stops(key: str | None, logged: list[Any]) -> None:
    """With a wrong one aborts do nothing, which is counted and is an error in the log."""
    result = "told" if key == "k" else "refused"
    count = ABORTS.labels("m", "generation", result)
    before = count._value.get()
    engine = SglangEngine(admin_key=None if key is None else Secret(key))
    async with pair_of(engine, admin_key="k") as pair:
        pair.context.add_fault("hang")
        exchange = exchange_of(orjson.dumps(CHAT))
        await _leave(pair, exchange)
        await pair.settled()
    assert count._value.get() == before + 1
    assert ("abort.refused" in {line["event"] for line in logged}) is (key != "k")


async def _leave(pair: Pair, exchange: Any) -> None:
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    for stub in pair.stubs:
        await stub.until(lambda state: state.running == 1)
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task


@define
class Tripping(LeastLoaded):
    """A policy with a fault: it fails whenever it hears of an ending."""

    def finished(self, _worker: Worker, _facts: Facts, /, *, success: bool) -> None:
        """Fail."""
        raise RuntimeError(f"success: {success}")


async def test_workers_are_told_to_stop_though_a_policy_fails_as_it_hears_of_it() -> None:
    """They would else go on with requests of clients that are gone."""
    count = ABORTS.labels("m", "context", "told")
    before = count._value.get()
    async with pair_of(SglangEngine()) as known:
        config = config_of(SglangEngine(), known.context, known.generation)
        assert config.context is not None
        config = evolve(config, context=evolve(config.context, policy=Tripping()))
        async with running(config) as dispatch:
            pair = Pair(known.context, known.generation, dispatch)
            pair.context.add_fault("hang")
            with pytest.raises(RuntimeError, match="success: False"):
                await _leave(pair, exchange_of(orjson.dumps(CHAT)))
            await pair.settled()
    assert count._value.get() == before + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_aborted_context_worker_ends_the_request(stream: bool) -> None:
    """It says 200 and the generation worker goes on from half a KV cache: nothing of that reaches the client."""
    async with pair_of(SglangEngine()) as pair:
        pair.context.add_fault("no_handoff")
        error = (await pair.ask(CHAT, stream=stream)).error
        assert (error.status, error.message) == (502, "the context worker gave up")
        await pair.settled()


async def test_another_pair_is_found_where_a_worker_cannot_be_reached() -> None:
    """With another room, since the first one was entered by the half that was there."""
    async with pair_of(SglangEngine()) as pair, run_stub("sglang", role="generation", model="m") as other:
        config = config_of(SglangEngine(), pair.context, pair.generation)
        assert config.generation is not None
        config = evolve(config, generation=evolve(config.generation, workers=(pair.generation.url, other.url)))
        async with running(config) as dispatch:
            pair.generation.kill()
            found = Pair(pair.context, other, dispatch)
            assert (await found.ask(CHAT)).json["choices"]
            await found.settled()
            await pair.generation.restart()


async def test_rooms_may_be_on_the_port_of_the_api() -> None:
    """For workers that keep them there."""
    async with (
        run_stub("sglang", role="context", model="m", side_on_api_port=True) as context,
        run_stub("sglang", role="generation", model="m") as generation,
        running(config_of(SglangEngine(bootstrap_on_api_port=True), context, generation)) as dispatch,
    ):
        pair = Pair(context, generation, dispatch)
        assert (await pair.ask(CHAT)).json["choices"]
        assert bodies(pair)[0]["bootstrap_port"] == context.port
        await pair.settled()


def request_of(data: dict[str, Any], endpoint: Any = CHAT_COMPLETIONS) -> Request:
    """A request with this body."""
    return Request(endpoint, Payload(orjson.dumps(data), data), bool(data.get("stream")))


@pytest.mark.parametrize(
    ("engine", "partner", "host", "port"),
    [
        (SglangEngine(), Partner("http://10.0.0.5:80"), "10.0.0.5", 8998),
        (SglangEngine(), Partner("http://[2001:db8::1]:80", 7), "[2001:db8::1]", 7),
        (SglangEngine(bootstrap_port=None), Partner("http://a:80"), "a", None),
        (SglangEngine(bootstrap_on_api_port=True), Partner("http://[::1]:81/x"), "[::1]", 81),
    ],
)
def test_where_the_rooms_are(engine: SglangEngine, partner: Partner, host: str, port: int | None) -> None:
    """The worker's own port before the engine's; an address of IPv6 in brackets."""
    fields = engine.meet(request_of(dict(CHAT)), partner).fields
    assert (fields["bootstrap_host"], fields["bootstrap_port"]) == (host, port)


def test_the_clients_bytes_go_to_the_generation_worker_as_they_are() -> None:
    """With the room behind them."""
    request = Request(CHAT_COMPLETIONS, Payload(b'{"model": "m" , "x":1.50 }\n', {"model": "m", "x": 1.5}), False)
    handoff = Handoff({"rid": "k-1", "bootstrap_room": 2**63 - 2})
    body = SglangEngine().body(Role.GENERATION, request, handoff)
    assert body.content == b'{"model": "m" , "x":1.50 ,"rid":"k-1","bootstrap_room":9223372036854775806}'


def test_probabilities_of_the_prompt_are_put_together() -> None:
    """The context worker knows those of what it computed; every event of the generation worker gets them."""
    engine, request = SglangEngine(), request_of(dict(CHAT))
    context = orjson.dumps({"meta_info": {"input_token_logprobs": [[-1.0, 1, None]], "finish_reason": None}})
    known = engine.read(Role.CONTEXT, request, context)
    assert isinstance(known, Handoff)
    answer = {"text": "a", "meta_info": {"input_token_logprobs": [[-2.0, 2, None]], "bootstrap_room": 5}}
    whole = engine.read(Role.GENERATION, request, orjson.dumps(answer), known)
    assert isinstance(whole, bytes)
    merged = {"text": "a", "meta_info": {"input_token_logprobs": [[-1.0, 1, None], [-2.0, 2, None]]}}
    assert orjson.loads(whole) == merged
    assert orjson.loads(engine.edit(request, known, b"", orjson.dumps(answer))) == merged


@pytest.mark.parametrize("reason", ["abort", {"type": "abort", "message": "no"}])
def test_a_context_worker_that_was_stopped_is_no_success(reason: object) -> None:
    """Whatever its status."""
    answer = {"choices": [{"finish_reason": reason}]}
    with pytest.raises(MalformedFault):
        SglangEngine().read(Role.CONTEXT, request_of(dict(CHAT)), orjson.dumps(answer))
