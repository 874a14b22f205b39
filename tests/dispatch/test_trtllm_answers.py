"""What is read from the answers of TensorRT-LLM's workers; no worker takes part."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Final, Handoff
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import COMPLETIONS
from tests.dispatch.trtllm_examples import CHAT, PARAMS, USAGE, context_answer, read, request_of, without


@pytest.mark.parametrize("reason", ["length", "not_finished"])
def test_these_finish_reasons_leave_the_rest_to_a_generation_worker(reason: str) -> None:
    """The context phase is over, the answer is not."""
    answer = context_answer()
    answer["choices"][0]["finish_reason"] = reason
    assert isinstance(read(answer), Handoff)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "content_filter", None, {}])
def test_with_any_other_finish_reason_the_answer_is_whole(reason: object) -> None:
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


@pytest.mark.parametrize(
    ("raw", "ids"),
    [
        (b'"prompt_token_ids":[1,2,30]', [1, 2, 30]),
        (b'"prompt_token_ids" : [ 1, 2 ]', [1, 2]),
        (b'"prompt_token_ids":[]', []),
        (b'"prompt_token_ids":[1.5,[2],"]"]', [1.5, [2], "]"]),
        (b'"prompt_token_ids":[7],"prompt_token_ids":[8]', [8]),
        (b'"x":{"prompt_token_ids":[7]},"prompt_token_ids":[8]', [8]),
        (b'"prompt_token_ids":[8],"x":{"prompt_token_ids":[7]}', [8]),
        (b'"x":{"prompt_token_ids":[7]}', None),
        (b'"x":"\\"prompt_token_ids\\":[7]"', None),
        (b'"\\"prompt_token_ids":[7],"prompt_token\\u005fids":[8]', [8]),
        (b'"prompt_token_ids":null,"x":[7]', None),
    ],
)
def test_token_ids_go_on_as_they_came(raw: bytes, ids: Any) -> None:
    """Those of the answer itself, however they are written, and whatever else has the name."""
    choice = orjson.dumps(context_answer()["choices"][0])
    answer = b'{"id":"x","choices":[' + choice + b"]," + raw + b"}"
    sent = orjson.loads(TrtllmEngine().body(Role.GENERATION, request_of(CHAT), read(answer)).content)
    assert sent.get("prompt_token_ids") == ids
    for broken in (answer[:-1], answer.replace(b"]", b"", 1), answer.replace(b'"id":"x"', b'"id":x')):
        with pytest.raises(MalformedFault):
            read(broken)


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
