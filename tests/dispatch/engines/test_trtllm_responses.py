"""The relay of the Responses API between TensorRT-LLM's workers: its handoff stands on the top of an answer."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Final, Handoff, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import RESPONSES
from plugins.slots import Payload

ASKED = {"model": "m", "input": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "store": False}
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}
REQUEST = Request(RESPONSES, Payload(orjson.dumps(ASKED), ASKED), False)
ENGINE = TrtllmEngine(gen_strip_message_history=True)


def read(**fields: Any) -> Any:
    """What is read of a context worker's answer."""
    params = {"ctx_request_id": 1, "disagg_request_id": 2}
    ended = {"disaggregated_params": params, "finish_reason": "length"}
    answer = {"id": "resp_1", "object": "response", "output": [], "usage": USAGE, **ended, **fields}
    return ENGINE.read(Role.CONTEXT, REQUEST, orjson.dumps(answer))


def sent(handoff: Handoff) -> dict[str, Any]:
    """The body of the generation leg."""
    body: dict[str, Any] = orjson.loads(ENGINE.body(Role.GENERATION, REQUEST, handoff).content)
    return body


def test_the_counts_have_the_names_of_a_chat() -> None:
    """Under those of Responses a worker would not see them; what was cached is counted too."""
    assert sent(read())["disaggregated_params"]["ctx_usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 1,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_the_input_is_never_shortened() -> None:
    """Its items are no messages of which the last one would do."""
    body = sent(read(prompt_token_ids_b64="AQAAAA=="))
    assert body["input"] == ASKED["input"]
    assert body["prompt_token_ids_b64"] == "AQAAAA=="
    assert "prompt_token_ids" not in body
    assert body["store"] is False


def test_an_answer_that_is_whole_has_nothing_of_the_relay() -> None:
    """Neither the handoff nor the token ids."""
    reading = read(finish_reason="stop", prompt_token_ids=[1], prompt_token_ids_b64="AQAAAA==")
    assert isinstance(reading, Final)
    assert not {"disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64"} & reading.data.keys()
    assert reading.data["output"] == []


@pytest.mark.parametrize("params", [None, {"ctx_request_id": 1}, {"disagg_request_id": 1}, []])
def test_a_handoff_that_is_missing_is_a_fault(params: Any) -> None:
    """As with the other APIs."""
    with pytest.raises(MalformedFault):
        read(disaggregated_params=params)
