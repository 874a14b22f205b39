"""What real workers were sent and answered, against what the engines make of it."""

from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from kernel import COMPLETED, Endpoint, Outcome
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.editing import EventEditor
from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.engines.bodies import append, raw_member
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.headers import Traits
from plugins.dispatch.opening import Opening
from plugins.dispatch.worker import Role
from plugins.slots import Payload, WorkerRejection

RECORDED = Path(__file__).parent / "recorded"
ENDPOINTS = {
    "/v1/completions": Endpoint("completions", "/v1/completions"),
    "/v1/chat/completions": Endpoint("chat_completions", "/v1/chat/completions"),
    "/v1/messages": Endpoint("messages", "/v1/messages"),
    "/v1/responses": Endpoint("responses", "/v1/responses"),
}
RELAYS = ["chat", "chat_stream", "completions", "messages", "responses"]
LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}


def load(name: str) -> Any:
    """A recording."""
    return orjson.loads((RECORDED / f"{name}.json").read_bytes())


def request_of(path: str, data: dict[str, Any]) -> Request:
    """The client's request."""
    return Request(ENDPOINTS[path], Payload(orjson.dumps(data), data), bool(data.get("stream")))


@pytest.fixture(params=RELAYS)
def relay(request: pytest.FixtureRequest) -> tuple[Any, Request]:
    """A recorded relay, and the client's request behind it."""
    recording = load(f"pd_nixl_{request.param}")
    sent = dict(recording["decode"]["request"]["body"])
    del sent["kv_transfer_params"]
    return recording, request_of(recording["decode"]["request"]["path"], sent)


def handoff_of(recording: Any, request: Request, engine: VllmEngine | None = None) -> Handoff:
    """What the engine reads from the recorded answer of the context worker."""
    answer = orjson.dumps(recording["prefill"]["response"]["body"])
    handoff = (engine or VllmEngine()).read(Role.CONTEXT, request, answer)
    assert isinstance(handoff, Handoff)
    return handoff


def test_the_context_body_is_the_one_that_worked(relay: tuple[Any, Request]) -> None:
    """Apart from fields that say what is usual anyway, and places that are not known yet."""
    recording, request = relay
    body = orjson.loads(VllmEngine().body(Role.CONTEXT, request, None).content)
    expected = recording["prefill"]["request"]["body"]
    params = {name: value for name, value in expected.pop("kv_transfer_params").items() if value is not None}
    assert body.pop("kv_transfer_params") == params
    assert {body.pop(name, 1) for name in LIMITS | {"n"}} == {1}
    assert body.pop("ignore_eos", True) is True
    assert (body.pop("stream"), body.pop("store", False)) == (False, False)
    assert body == {name: value for name, value in expected.items() if name not in LIMITS | {"stream"}}


def test_the_generation_body_is_the_one_that_worked(relay: tuple[Any, Request]) -> None:
    """The client's request and the handoff, all of it."""
    recording, request = relay
    body = VllmEngine().body(Role.GENERATION, request, handoff_of(recording, request))
    assert orjson.loads(body.content) == recording["decode"]["request"]["body"]
    assert body.content.startswith(request.payload.raw[:-1])


@pytest.mark.parametrize("relay", ["chat", "completions", "messages", "responses"], indirect=True)
def test_the_answer_counts_what_the_context_worker_had_cached(relay: tuple[Any, Request]) -> None:
    """And says nothing of the handoff."""
    recording, request = relay
    usage = recording["prefill"]["response"]["body"]["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or usage
    name = "cached_tokens" if details is not usage else "cache_read_input_tokens"
    details[name] = 64
    if details is usage:
        usage["input_tokens"] = 5
    given = recording["decode"]["response"]["body"]
    given["kv_transfer_params"] = {"remote_host": "10.0.0.5"}
    answer = VllmEngine().read(Role.GENERATION, request, orjson.dumps(given), handoff_of(recording, request))
    assert isinstance(answer, bytes)
    read = orjson.loads(answer)
    assert read.get("kv_transfer_params") is None
    got = read["usage"]
    assert (got.get("prompt_tokens_details") or got.get("input_tokens_details") or got)[name] == 64
    assert "input_tokens" not in got or got["input_tokens"] == usage["input_tokens"]


def test_a_stream_is_the_same_wherever_it_was_cut() -> None:
    """At every byte; only the event with the counts is another one."""
    recording = load("pd_nixl_chat_stream")
    request = request_of("/v1/chat/completions", {"stream": True})
    recording["prefill"]["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"] = 77
    handoff, engine = handoff_of(recording, request), VllmEngine()
    raw = recording["decode"]["response"]["raw_sse"].encode()
    raw = raw.replace(b'"finish_reason":"length"', b'"finish_reason":"length","kv_transfer_params":{"remote_host":"h"}')
    *before, usage, done, end = raw.split(b"\n\n")
    for cut in range(0, len(raw), 7):
        editor = EventEditor(engine.concern, partial(engine.edit, request, handoff))
        out = editor.push(raw[:cut]) + editor.push(raw[cut:]) + editor.close(Outcome(COMPLETED))
        *kept, counted, marker, rest = out.split(b"\n\n")
        assert kept[:-1] == before[:-1]
        assert orjson.loads(counted[6:])["usage"]["prompt_tokens_details"]["cached_tokens"] == 77
        assert (marker, rest) == (done, end) != (usage, end)
        assert b"remote_host" not in out


class Chunks:
    """An answer whose body comes in these pieces."""

    status = 200

    def __init__(self, *chunks: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.traits = Traits.of(self.headers)
        self._chunks = [*chunks, b""]

    async def chunk(self) -> bytes:
        """The next piece."""
        return self._chunks.pop(0)

    def rest(self) -> bytes | None:
        """Nobody asks."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["pd_fault_dead_prefill_stream", "pd_fault_dead_prefill_messages_stream"])
async def test_a_stream_whose_context_worker_is_gone_is_an_error(name: str) -> None:
    """Although it had begun: nothing was said yet, wherever it was cut."""
    raw = load(name)["response"]["raw_sse"].encode()
    for cut in range(1, len(raw), 11):
        with pytest.raises(WorkerRejection) as caught:
            await Opening().read(Chunks(raw[:cut], raw[cut:]))
        assert caught.value.status == 500


@pytest.mark.anyio
async def test_a_stream_begins_with_what_it_says() -> None:
    """Nothing of what came is lost."""
    raw = load("pd_nixl_chat_stream")["decode"]["response"]["raw_sse"].encode()
    end = raw.index(b"\n\n", raw.index(b"\n\n") + 2) + 2
    response = Chunks(raw[:10], raw[10:end], raw[end:])
    assert await Opening().read(response) == raw[:end]
    with pytest.raises(MalformedFault):
        await Opening().read(Chunks(raw[: raw.index(b"\n\n") + 2]))


@pytest.mark.parametrize("name", ["chat", "completions", "messages", "responses"])
def test_both_halves_of_a_pair_are_sent_what_worked(name: str) -> None:
    """The recorded body, with an id of the kernel's own, and no stream for the context worker."""
    recording = load(f"pd_sglang_{name}")
    sent = recording["request_to_both"]["body"]
    place = {key: sent[key] for key in sent if key.startswith("bootstrap_")}
    client = {key: value for key, value in sent.items() if key not in place}
    request, engine = request_of(recording["request_to_both"]["path"], client), SglangEngine()
    handoff, sent = Handoff({**place, "rid": "k-1"}), {**sent, "rid": "k-1"}
    assert orjson.loads(engine.body(Role.GENERATION, request, handoff).content) == sent
    assert orjson.loads(engine.body(Role.CONTEXT, request, handoff).content) == {**sent, "stream": False}
    assert isinstance(engine.read(Role.CONTEXT, request, orjson.dumps(recording["prefill"]["body"])), Handoff)
    answer = orjson.dumps(recording["decode"]["body"])
    assert engine.read(Role.GENERATION, request, answer, Handoff({})) is answer


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("number", ["123456789012345678901234567890", "1.50", "1e2", "-0.0", "7"])
def test_a_handoff_is_relayed_bit_for_bit(number: str, compact: bool) -> None:
    """Numbers too, which would not come back from most readers as they were."""
    params = (
        '{ "do_remote_prefill":true, "remote_engine_id":"e","remote_host":"h","remote_port":1, '
        f'"x" : {number} ,"u":"\\u00e4" }}'
    )
    answer = f'{{"choices":[{{"text":"\\"kv_transfer_params\\": {{}}"}}], "kv_transfer_params" : {params}}}'.encode()
    if compact:
        params, answer = params.replace(" ", "").replace("\\u00e4", "ä"), answer.replace(b" ", b"")
        answer = answer.replace(b"\\u00e4", "ä".encode())
    request = request_of("/v1/completions", {"prompt": "a"})
    handoff = VllmEngine().read(Role.CONTEXT, request, answer)
    assert isinstance(handoff, Handoff)
    body = VllmEngine().body(Role.GENERATION, request, handoff)
    assert body.content == b'{"prompt":"a","kv_transfer_params":' + params.encode() + b"}"


@pytest.mark.parametrize("ids", [[1, 2, 3], [-1], [], None])
def test_token_ids_go_into_the_handoff(ids: list[int] | None) -> None:
    """So that the generation worker does not have to read the chat once more."""
    engine = VllmEngine(reuse_prompt_token_ids=True)
    recording = load("pd_nixl_chat")
    recording["prefill"]["response"]["body"]["prompt_token_ids"] = ids
    request = request_of("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
    assert orjson.loads(engine.body(Role.CONTEXT, request, None).content)["return_token_ids"] is True
    body = orjson.loads(engine.body(Role.GENERATION, request, handoff_of(recording, request, engine)).content)
    assert body["kv_transfer_params"].get("prompt_token_ids") == (ids or None)
    parts = request_of("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text"}]}]})
    assert "return_token_ids" not in orjson.loads(engine.body(Role.CONTEXT, parts, None).content)


@pytest.mark.parametrize("params", [{"do_remote_prefill": True}, [1], "x", {"remote_host": "a", "remote_port": 1}])
def test_a_handoff_from_nowhere_goes_no_further(params: object) -> None:
    """It would end the generation worker's process."""
    request = request_of("/v1/completions", {"prompt": "a"})
    with pytest.raises(MalformedFault):
        VllmEngine().read(Role.CONTEXT, request, orjson.dumps({"kv_transfer_params": params}))


def test_a_handoff_may_be_nested_more_deeply_than_it_can_be_written() -> None:
    """It passes as it came."""
    deep = b"[" * 300 + b"]" * 300
    params = b'{"remote_engine_id":"e","remote_host":"h","remote_port":1,"x":%b}' % deep
    request, engine = request_of("/v1/completions", {"prompt": "a"}), VllmEngine()
    handoff = engine.read(Role.CONTEXT, request, b'{"choices":[],"kv_transfer_params":%b}' % params)
    assert isinstance(handoff, Handoff)
    body = engine.body(Role.GENERATION, request, handoff)
    assert body.content == b'{"prompt":"a","kv_transfer_params":%b}' % params
    with pytest.raises(MalformedFault):
        engine.read(Role.CONTEXT, request, b'{"kv_transfer\\u005fparams":%b}' % params)


@pytest.mark.parametrize("answer", [b"[]", b"{", b'{"choices":[{"finish_reason":"abort"}]}'])
def test_an_answer_that_is_none_is_a_fault(answer: bytes) -> None:
    """So is one of a request that was stopped."""
    request = request_of("/v1/completions", {"prompt": "a"})
    with pytest.raises(MalformedFault):
        VllmEngine().read(Role.CONTEXT, request, answer)


@pytest.mark.parametrize(
    ("path", "data", "alone"),
    [
        ("/v1/chat/completions", {"n": 2}, True),
        ("/v1/chat/completions", {"n": 1}, False),
        ("/v1/completions", {"prompt": ["a", "b"]}, True),
        ("/v1/completions", {"prompt": [[1], [2]]}, True),
        ("/v1/completions", {"prompt": [1, 2]}, False),
        ("/v1/completions", {"prompt": "a", "best_of": 2}, True),
        ("/v1/completions", {"prompt": "a", "use_beam_search": True}, True),
        ("/v1/completions", {"prompt": "a", "echo": True}, True),
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": 0}, True),
        ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ("/v1/messages", {"thinking": {"type": "disabled"}}, False),
    ],
)
def test_what_cannot_be_handed_over_is_served_by_one(path: str, data: dict[str, Any], alone: bool) -> None:
    """Right rather than fast."""
    assert VllmEngine().alone(request_of(path, data)) is alone


def test_the_context_worker_gets_no_field_that_it_would_refuse() -> None:
    """Beside a limit of one token and without a stream."""
    data = {"messages": [], "stream": True, "stream_options": {}, "min_tokens": 5, "stop": ["a"], "n": 1, "tools": [1]}
    body = orjson.loads(VllmEngine().body(Role.CONTEXT, request_of("/v1/chat/completions", data), None).content)
    assert not {"stream_options", "min_tokens", "stop"} & body.keys()
    assert (body["max_tokens"], body["max_completion_tokens"], body["tools"]) == (1, 1, [1])
    messages = orjson.loads(VllmEngine().body(Role.CONTEXT, request_of("/v1/messages", {}), None).content)
    assert "ignore_eos" not in messages


@pytest.mark.parametrize(
    "fields",
    [
        {"connector": "multi"},
        {"connector": "multi", "children": ("nixl", "mooncake")},
        {"connector": "multi", "children": ("lmcache",)},
        {"children": ("nixl",)},
        {"lease_seconds": 0},
    ],
)
def test_connectors_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    """One of several children moves KV caches between workers."""
    with pytest.raises(ValueError, match=r"children|lease_seconds"):
        VllmEngine(**fields)


def test_members_are_put_behind_the_others() -> None:
    """Whatever white space the client has left."""
    assert append(b'{"a":1}\r\n ', b'{"b":2}') == b'{"a":1,"b":2}'
    assert append(b'{"a":1} ', b"{}") == b'{"a":1} '
    assert raw_member(b'{"\\u0061":[1]}', "a", [1]) == b"[1]"
