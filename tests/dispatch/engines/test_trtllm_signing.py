"""The signatures of TensorRT-LLM's frontend: what they cover, and which requests have them."""

import hashlib
import hmac
from typing import Any

import pytest

from kernel import Rejection, Secret
from plugins.dispatch.engine import Handoff, Partner, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import Conversation, Payload

KEY = "a shared kéy"
ENGINE = TrtllmEngine(internal_request_auth_key=Secret(KEY))
AUTH = "x-trtllm-disagg-auth"
AFFINITY = "x-trtllm-subagent-affinity-id"
AFFINITY_AUTH = "x-trtllm-subagent-affinity-auth"
AGENT = Conversation("c", "x-session-id", subagent_affinity="parent")


def signature(text: str) -> str:
    """The HMAC of a canonical text."""
    return "sha256=" + hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def request_of(conversation: Conversation | None = None) -> Request:
    """A chat."""
    return Request(CHAT_COMPLETIONS, Payload(b"", {"model": "m", "messages": []}), False, conversation)


def handed(**params: Any) -> Handoff:
    """A handoff of these parameters."""
    return Handoff({"disaggregated_params": {"request_type": "generation_only", "disagg_request_id": 9, **params}})


@pytest.mark.parametrize(
    ("params", "signed"),
    [
        ({"encoded_opaque_state": "/w=="}, '{"ctx_info_endpoint":null,"encoded_opaque_state":"/w=="}'),
        ({"ctx_info_endpoint": "tcp://a"}, '{"ctx_info_endpoint":"tcp://a","encoded_opaque_state":null}'),
        (
            {"ctx_info_endpoint": ["tcp://a", "tcp://b"], "encoded_opaque_state": "x"},
            '{"ctx_info_endpoint":"tcp://a","encoded_opaque_state":"x"}',
        ),
        ({}, None),
        ({"encoded_opaque_state": None, "ctx_info_endpoint": None}, None),
    ],
)
def test_state_and_endpoint_are_signed(params: dict[str, Any], signed: str | None) -> None:
    """Compact JSON with sorted keys, null for what is not there; a handoff without both is not signed."""
    headers = ENGINE.body(Role.GENERATION, request_of(), handed(**params)).headers
    assert headers.get(AUTH) == (None if signed is None else signature(signed))
    assert AFFINITY not in headers


def test_requests_without_a_handoff_are_not_signed() -> None:
    """Neither the context leg, nor one that a generation worker serves alone."""
    for role in Role:
        assert ENGINE.body(role, request_of(), None).headers == {}


def test_without_a_key_nothing_is_signed() -> None:
    """Workers without a key only warn; those with one refuse, and say so."""
    body = TrtllmEngine().body(Role.GENERATION, request_of(), handed(encoded_opaque_state="x"))
    assert body.headers == {}


@pytest.mark.parametrize("role", list(Role))
def test_the_affinity_of_a_sub_agent_is_signed_for_each_role(role: Role) -> None:
    """With all that it belongs to; it is in no body."""
    body = ENGINE.body(role, request_of(AGENT), handed() if role is Role.GENERATION else None)
    kind, id = ("generation_only", "9") if role is Role.GENERATION else ("context_only", _id_in(body.content))
    text = (
        f'{{"conversation_id":"c","disagg_request_id":{id},"model":"m","purpose":"{AFFINITY}",'
        f'"request_type":"{kind}","role":"{role.upper()}","subagent_affinity_id":"parent"}}'
    )
    assert body.headers[AFFINITY] == "parent"
    assert body.headers[AFFINITY_AUTH] == signature(text)
    assert b"parent" not in body.content


def _id_in(content: bytes) -> str:
    return content.partition(b'"disagg_request_id":')[2].partition(b",")[0].decode()


def test_each_attempt_is_signed_anew() -> None:
    """The signature covers the attempt's id."""
    made = {ENGINE.body(Role.CONTEXT, request_of(AGENT), None).headers[AFFINITY_AUTH] for _ in range(5)}
    assert len(made) == 5


def test_a_pair_is_signed_with_the_endpoint_that_was_told() -> None:
    """Of a list, the first one, which is also the one that is sent."""
    engine = TrtllmEngine(schedule="generation_first", internal_request_auth_key=Secret(KEY))
    told = {"disaggregated_params": {"ctx_info_endpoint": ["tcp://a", "tcp://b"]}}
    handoff = engine.meet(request_of(), Partner("http://c", told=told))
    assert handoff.fields[Role.GENERATION]["ctx_info_endpoint"] == "tcp://a"
    headers = engine.body(Role.GENERATION, request_of(), handoff).headers
    assert headers[AUTH] == signature('{"ctx_info_endpoint":"tcp://a","encoded_opaque_state":null}')
    assert AUTH not in engine.body(Role.CONTEXT, request_of(), handoff).headers


def test_a_sub_agent_needs_a_key() -> None:
    """A mistake in the configuration, told before any worker is asked."""
    with pytest.raises(Rejection, match="sub-agents need an internal_request_auth_key") as caught:
        TrtllmEngine().check(request_of(AGENT))
    assert (caught.value.status, caught.value.code) == (500, "misconfigured")
    ENGINE.check(request_of(AGENT))
    TrtllmEngine().check(request_of())
