"""What TensorRT-LLM's workers are sent, and what is read from their answers; no worker takes part."""

from array import array
from base64 import b64encode
from typing import Any

import orjson
import ormsgpack
import pytest

from kernel import Endpoint, Rejection
from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.slots import Conversation
from tests.dispatch.trtllm_examples import CHAT, PARAMS, USAGE, context_answer, read, request_of


def sent(engine: TrtllmEngine, role: Role, request: Request, handoff: Handoff | None = None) -> dict[str, Any]:
    """The body of a leg, decoded."""
    body = engine.body(role, request, handoff)
    assert body.headers == {}
    data: dict[str, Any] = orjson.loads(body.content)
    return data


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("endpoint", [CHAT_COMPLETIONS, COMPLETIONS])
def test_a_client_cannot_send_the_token_ids_of_a_handoff(role: Role, endpoint: Endpoint) -> None:
    """A worker would take them in place of the messages."""
    client = {**CHAT, "prompt": "Hello", "prompt_token_ids": [7], "prompt_token_ids_b64": "BwAAAA=="}
    data = sent(TrtllmEngine(), role, request_of(client, endpoint), Handoff({}))
    assert not {"prompt_token_ids", "prompt_token_ids_b64"} & data.keys()


def test_the_context_worker_is_asked_for_the_context_phase_only() -> None:
    """The client's own fields stay, also its limit: the worker stops by itself after one token."""
    data = sent(TrtllmEngine(), Role.CONTEXT, request_of(CHAT))
    params = data.pop("disaggregated_params")
    assert data == {**CHAT, "stream": False, "stream_options": None}
    assert 2**40 <= params.pop("disagg_request_id") < 2**63
    assert params == {"request_type": "context_only", "schedule_style": 0, "return_prompt_token_ids_b64": False}


def test_each_attempt_has_an_id_of_its_own() -> None:
    """A worker that saw the first attempt must not take the second for the same."""
    engine, request = TrtllmEngine(gen_tokids_ctxbytes=True), request_of(CHAT)
    params = [sent(engine, Role.CONTEXT, request)["disaggregated_params"] for _ in range(50)]
    assert len({param["disagg_request_id"] for param in params}) == 50
    assert params[0]["return_prompt_token_ids_b64"] is True


def test_the_clients_fields_are_never_changed() -> None:
    """Every leg gets its own copy."""
    request = request_of(CHAT, conversation=Conversation("c", "header"))
    before = orjson.dumps(request.payload.data)
    engine = TrtllmEngine(gen_strip_message_history=True)
    engine.body(Role.CONTEXT, request, None)
    engine.body(Role.GENERATION, request, read(context_answer()))
    assert orjson.dumps(request.payload.data) == before
    assert request.payload.edited is False


def test_the_generation_worker_goes_on_from_the_handoff() -> None:
    """It gets the handoff as it is, exact to the last digit, with the counts of the context phase."""
    data = sent(TrtllmEngine(), Role.GENERATION, request_of(CHAT), read(context_answer()))
    assert data == {
        **CHAT,
        "prompt_token_ids": [1, 2, 3],
        "disaggregated_params": {
            **PARAMS,
            "request_type": "generation_only",
            "schedule_style": 0,
            "ctx_usage": USAGE,
        },
    }


def test_token_ids_as_bytes_travel_as_they_are() -> None:
    """For chat the packed form goes on to the generation worker, and only it."""
    client = {**CHAT, "prompt_token_ids": [7], "prompt_token_ids_b64": "old"}
    handoff = read(context_answer(prompt_token_ids=None, prompt_token_ids_b64="AQAAAA=="))
    data = sent(TrtllmEngine(), Role.GENERATION, request_of(client), handoff)
    assert data["prompt_token_ids_b64"] == "AQAAAA=="
    assert "prompt_token_ids" not in data


@pytest.mark.parametrize(
    "ids", [{"prompt_token_ids": [1, 2]}, {"prompt_token_ids": None, "prompt_token_ids_b64": "packed"}]
)
def test_a_completions_prompt_becomes_token_ids(ids: dict[str, Any]) -> None:
    """The completions API has one field for both, which takes no packed form."""
    if "prompt_token_ids_b64" in ids:
        ids = {**ids, "prompt_token_ids_b64": b64encode(array("i", [1, 2]).tobytes()).decode()}
    request = request_of({"model": "m", "prompt": "a b"}, COMPLETIONS)
    handoff = read(context_answer(chat=False, **ids), COMPLETIONS)
    data = sent(TrtllmEngine(), Role.GENERATION, request, handoff)
    assert data["prompt"] == [1, 2]
    assert not {"prompt_token_ids", "prompt_token_ids_b64"} & data.keys()


def test_without_token_ids_the_prompt_stays() -> None:
    """Both workers then make the same tokens from the same text."""
    handoff = read(context_answer(prompt_token_ids=None))
    assert sent(TrtllmEngine(), Role.GENERATION, request_of(CHAT), handoff).keys() == {*CHAT, "disaggregated_params"}


def test_the_history_can_be_left_out_of_the_generation_leg() -> None:
    """The context worker needs all messages, the generation worker has the token ids of them."""
    engine = TrtllmEngine(gen_strip_message_history=True)
    request, handoff = request_of(CHAT), read(context_answer())
    assert sent(engine, Role.CONTEXT, request)["messages"] == CHAT["messages"]
    data = sent(engine, Role.GENERATION, request, handoff)
    assert data["messages"] == CHAT["messages"][-1:]  # type: ignore[index]
    assert data["tools"] == CHAT["tools"]


def test_msgpack_is_announced() -> None:
    """The content type stays JSON; the header of its own says what the bytes are."""
    body = TrtllmEngine(body="msgpack").body(Role.CONTEXT, request_of(CHAT), None)
    assert body.headers == {"x-trtllm-msgpack": "1"}
    assert ormsgpack.unpackb(body.content)["messages"] == CHAT["messages"]


def test_msgpack_has_the_clients_fields_and_no_others() -> None:
    """Under the names by which they came, and exact: nothing that the client left out is filled in."""
    engine = TrtllmEngine(body="msgpack")
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    client = {**CHAT, "response_format": schema, "seed": 2**63, "temperature": 0.1, "user": "\u6c34"}
    data = ormsgpack.unpackb(engine.body(Role.CONTEXT, request_of(client), None).content)
    params = data.pop("disaggregated_params")
    assert data == {**client, "stream": False, "stream_options": None}
    assert params.keys() == {"request_type", "disagg_request_id", "schedule_style", "return_prompt_token_ids_b64"}
    handoff = engine.read(Role.CONTEXT, request_of(client), orjson.dumps(context_answer()))
    assert isinstance(handoff, Handoff)
    data = ormsgpack.unpackb(engine.body(Role.GENERATION, request_of(client), handoff).content)
    assert data["disaggregated_params"]["ctx_request_id"] == PARAMS["ctx_request_id"]
    assert data["prompt_token_ids"] == [1, 2, 3]
    assert {name: data[name] for name in client} == client


@pytest.mark.parametrize("body", ["json", "msgpack"])
def test_a_body_too_deep_to_be_written_is_the_clients_fault(body: Any) -> None:
    """Parsers take deeper JSON than encoders write."""
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}
    with pytest.raises(Rejection) as caught:
        TrtllmEngine(body=body).body(Role.CONTEXT, request_of({**CHAT, "metadata": deep}), None)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")


@pytest.mark.parametrize("role", list(Role))
def test_the_conversation_goes_to_both_workers(role: Role) -> None:
    """As a field of the body, without the affinity of a sub-agent."""
    client = {**CHAT, "conversation_params": {"conversation_id": "c", "subagent_affinity_id": "p"}}
    conversation = Conversation("c", "conversation_params", subagent_affinity="p")
    data = sent(TrtllmEngine(), role, request_of(client, conversation=conversation), read(context_answer()))
    assert data["conversation_params"] == {"conversation_id": "c"}


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        ("a b", "a b"),
        ("", ""),
        (["a b"], "a b"),
        ([1, 2], [1, 2]),
        ([5], [5]),
        ([[1, 2]], [1, 2]),
    ],
)
def test_a_list_round_one_prompt_is_taken_off(given: object, prompt: object) -> None:
    """A list of token ids is one prompt and stays a list, also with a single token."""
    request = request_of({"model": "m", "prompt": given}, COMPLETIONS)
    TrtllmEngine().check(request)
    assert sent(TrtllmEngine(), Role.CONTEXT, request)["prompt"] == prompt


@pytest.mark.parametrize(
    "given", [[], [[]], None, 5, {}, [None], [True], [1, "a"], [1.5], [[1, "a"]], ["a", "b"], [[1], [2]], ["a", 1]]
)
def test_any_other_prompt_is_the_clients_fault(given: object) -> None:
    """A handoff carries one prompt; what is no prompt at all is not for a worker to find out."""
    with pytest.raises(Rejection) as caught:
        TrtllmEngine().check(request_of({"model": "m", "prompt": given}, COMPLETIONS))
    assert (caught.value.status, caught.value.param) == (400, "prompt")
