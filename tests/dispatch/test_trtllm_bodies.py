"""What TensorRT-LLM's workers are sent, and what is read from their answers; no worker takes part."""

from array import array
from base64 import b64encode
from typing import Any

import orjson
import ormsgpack
import pytest

from kernel import Endpoint, Rejection
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Final, Handoff, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.slots import Conversation, Payload

CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hello"}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 7,
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
PARAMS = {
    "request_type": "context_only",
    "first_gen_tokens": [9],
    "ctx_request_id": 2**63 + 5,
    "disagg_request_id": 2**62 + 1,
    "encoded_opaque_state": "//79",
    "draft_tokens": None,
    "ctx_info_endpoint": "tcp://10.0.0.5:1",
    "remote_tail_start": 4,
}


def request_of(
    data: dict[str, Any], endpoint: Endpoint = CHAT_COMPLETIONS, conversation: Conversation | None = None
) -> Request:
    """A request with this body."""
    return Request(endpoint, Payload(b"", data), bool(data.get("stream")), conversation)


def sent(engine: TrtllmEngine, role: Role, request: Request, handoff: Handoff | None = None) -> dict[str, Any]:
    """The body of a leg, decoded."""
    body = engine.body(role, request, handoff)
    assert body.headers == {}
    data: dict[str, Any] = orjson.loads(body.content)
    return data


def context_answer(chat: bool = True, **fields: Any) -> dict[str, Any]:
    """A context worker's answer that waits for a generation worker."""
    said = {"message": {"role": "assistant", "content": "A"}} if chat else {"text": "A"}
    choice = {"index": 0, **said, "finish_reason": "length", "disaggregated_params": PARAMS}
    return {"id": "x", "choices": [choice], "usage": USAGE, "prompt_token_ids": [1, 2, 3], **fields}


def read(answer: Any, endpoint: Endpoint = CHAT_COMPLETIONS) -> Any:
    """What the engine reads from a context worker's answer."""
    raw = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    return TrtllmEngine().read(Role.CONTEXT, request_of(CHAT, endpoint), raw)


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
    data = ormsgpack.unpackb(engine.body(Role.GENERATION, request_of(client), read(context_answer())).content)
    assert data["disaggregated_params"]["ctx_request_id"] == PARAMS["ctx_request_id"]
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


@pytest.mark.parametrize("reason", ["length", "not_finished"])
def test_these_finish_reasons_leave_the_rest_to_a_generation_worker(reason: str) -> None:
    """The context phase is over, the answer is not."""
    answer = context_answer()
    answer["choices"][0]["finish_reason"] = reason
    assert isinstance(read(answer), Handoff)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "content_filter", None])
def test_with_any_other_finish_reason_the_answer_is_whole(reason: str | None) -> None:
    """It goes to the client without handoff and token ids, even if its handoff has no ids."""
    answer = context_answer(prompt_token_ids_b64="AQ==")
    answer["choices"][0] |= {"finish_reason": reason, "disaggregated_params": {"ctx_request_id": None}}
    reading = read(answer)
    assert isinstance(reading, Final)
    assert reading.data == {
        "id": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "A"}, "finish_reason": reason}],
        "usage": USAGE,
    }


def test_several_choices_share_the_first_ones_handoff() -> None:
    """One handoff serves the whole request."""
    answer = context_answer()
    other = {**answer["choices"][0], "index": 1, "disaggregated_params": {**PARAMS, "ctx_request_id": 8}}
    answer["choices"].append(other)
    assert read(answer).fields["disaggregated_params"]["ctx_request_id"] == PARAMS["ctx_request_id"]


def without(**params: Any) -> dict[str, Any]:
    """An answer whose handoff has these fields instead."""
    answer = context_answer()
    answer["choices"][0]["disaggregated_params"] = {**PARAMS, **params}
    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (context_answer(choices=[{"message": {}, "finish_reason": "length"}]), "has no handoff"),
        (context_answer(choices=[{"message": {}, "finish_reason": "stop"}]), "has no handoff"),
        (context_answer(choices=[*context_answer()["choices"], {"message": {}}]), "has no handoff"),
        (without(ctx_request_id=None), "has an incomplete handoff"),
        (without(disagg_request_id=None), "has an incomplete handoff"),
        (context_answer(choices=[]), "is not an answer of this API"),
        (context_answer(choices=None), "is not an answer of this API"),
        (context_answer(choices=[None]), "is not an answer of this API"),
        (context_answer(choices=[{"text": "A"}]), "is not an answer of this API"),
        (context_answer(choices=[{"message": {"tool_calls": [1]}}]), "is not an answer of this API"),
        ([], "is not a JSON object"),
        (b"<html>", "is not JSON"),
        (b"", "is not JSON"),
    ],
)
def test_an_answer_without_a_usable_handoff_is_a_bad_gateway(answer: Any, message: str) -> None:
    """Going on without it would compute the prompt again, or answer from another request's memory."""
    with pytest.raises(MalformedFault) as caught:
        read(answer)
    assert caught.value.status == 502
    assert caught.value.message == f"the context worker's answer {message}"


@pytest.mark.parametrize("missing", ["ctx_request_id", "disagg_request_id"])
def test_the_log_says_which_id_of_a_handoff_is_missing(missing: str) -> None:
    """With the other one and the finish reason; the client is told neither."""
    with pytest.raises(MalformedFault) as caught:
        read(without(**{missing: None}))
    other = ({"ctx_request_id", "disagg_request_id"} - {missing}).pop()
    assert f"'{missing}': None" in caught.value.detail
    assert f"'{other}': {PARAMS[other]}" in caught.value.detail
    assert "'length'" in caught.value.detail
    assert str(PARAMS[other]) not in caught.value.message


def test_token_ids_that_cannot_be_unpacked_are_a_bad_gateway() -> None:
    """A completions prompt has no packed form, so they must be unpacked here."""
    for packed in ("!", "AQ==", 5):
        with pytest.raises(MalformedFault):
            read(context_answer(chat=False, prompt_token_ids=None, prompt_token_ids_b64=packed), COMPLETIONS)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"choices":[{"text":"A", "disaggregated_params" : null}], "prompt_token_ids":null}',
        b'{"choices":[{"text":"say \\"disaggregated_params\\": 1"}]}',
        b"not json",
    ],
)
def test_an_answer_without_internals_goes_to_the_client_as_it_is(answer: bytes) -> None:
    """Null fields are part of the shape that this engine's clients know."""
    assert TrtllmEngine().read(Role.GENERATION, request_of(CHAT), answer) is answer


def test_internals_never_reach_the_client() -> None:
    """A generation worker's answer loses handoff and token ids, and nothing else."""
    answer = orjson.dumps({"id": "x", "prompt_token_ids": [1], "choices": [{"disaggregated_params": {}, "text": "A"}]})
    stripped = TrtllmEngine().read(Role.GENERATION, request_of(CHAT), answer)
    assert isinstance(stripped, bytes)
    assert orjson.loads(stripped) == {"id": "x", "choices": [{"text": "A"}]}
    with pytest.raises(MalformedFault):
        TrtllmEngine().read(Role.GENERATION, request_of(CHAT), answer[:-1])
