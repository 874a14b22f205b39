"""The signatures by which TensorRT-LLM workers know their front end."""

import hashlib
import hmac
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import run_stub
from tests.stub.support import CHAT, PATHS, Body, context_body, generation_body, post

pytestmark = pytest.mark.anyio

KEY = "shared secret ☃"


def sign(payload: Body, key: str = KEY) -> str:
    """Sign a payload as the front end does."""
    raw = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    return "sha256=" + hmac.new(key.encode(), raw, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "case", ["right", "missing", "other key", "other state", "no prefix", "empty", "unknown scheme"]
)
async def test_a_generation_leg_is_signed(client: aiohttp.ClientSession, case: str) -> None:
    """With a key, a generation leg needs the signature of its state and endpoint; a context leg needs none."""
    async with (
        run_stub("trtllm", role="context", auth_key=KEY) as context,
        run_stub("trtllm", role="generation", auth_key=KEY) as generation,
    ):
        status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
        assert status == 200
        body = generation_body(CHAT, answer)
        params: dict[str, Any] = body["disaggregated_params"]
        payload = {name: params[name] for name in ("ctx_info_endpoint", "encoded_opaque_state")}
        right = sign(payload)
        signatures = {
            "right": right,
            "other key": sign(payload, "other"),
            "other state": sign({**payload, "encoded_opaque_state": "AAAA"}),
            "no prefix": right.removeprefix("sha256="),
            "empty": "",
            "unknown scheme": right.replace("sha256", "sha512"),
        }
        headers = {} if case == "missing" else {"x-trtllm-disagg-auth": signatures[case]}
        status, answer = await post(client, generation, PATHS["chat"], body, **headers)
        assert status == (200 if case == "right" else 400)
        assert case == "right" or "x-trtllm-disagg-auth" in answer["message"]
        assert context.state().handoffs.held == (0 if case == "right" else 1)


async def test_whole_requests_need_no_signature(client: aiohttp.ClientSession) -> None:
    """A request without a handoff is nobody's secret; without a key nothing is checked."""
    async with run_stub("trtllm", role="generation", auth_key=KEY) as generation:
        assert (await post(client, generation, PATHS["chat"], CHAT))[0] == 200
    async with run_stub("trtllm", role="context") as context:
        status, _answer = await post(
            client, context, PATHS["chat"], context_body(CHAT), **{"x-trtllm-subagent-affinity-id": "a"}
        )
        assert status == 200


async def test_a_context_leg_needs_no_signature(client: aiohttp.ClientSession) -> None:
    """What only generation legs are signed for is not asked of a context leg that has the same fields."""
    async with run_stub("trtllm", role="context", auth_key=KEY) as context:
        body = context_body(CHAT, ctx_info_endpoint="http://127.0.0.1:1", encoded_opaque_state="AAAA")
        assert (await post(client, context, PATHS["chat"], body))[0] == 200


async def test_a_subagent_has_no_place_in_a_body(client: aiohttp.ClientSession) -> None:
    """The affinity of a sub-agent in a body is taken, and counted."""
    async with run_stub("trtllm") as stub:
        for params in ({"conversation_id": "c"}, {"conversation_id": "c", "subagent_affinity_id": "a"}):
            assert (await post(client, stub, PATHS["chat"], {**CHAT, "conversation_params": params}))[0] == 200
        assert stub.state().violations == {"subagent_in_body": 1}


@pytest.mark.parametrize("case", ["right", "missing", "no id", "other id", "other role", "other conversation"])
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_the_affinity_of_a_subagent_is_signed(client: aiohttp.ClientSession, role: str, case: str) -> None:
    """The id of a sub-agent comes in a header, signed together with all that it belongs to."""
    async with run_stub("trtllm", role=role, auth_key=KEY) as stub:
        body = {**CHAT, "conversation_params": {"conversation_id": "c-1"}}
        if role == "context":
            body = context_body(body, 77)
        payload = {
            "purpose": "x-trtllm-subagent-affinity-id",
            "role": role.upper(),
            "model": "stub",
            "conversation_id": "c-1",
            "subagent_affinity_id": "agent",
            "request_type": "context_only" if role == "context" else None,
            "disagg_request_id": 77 if role == "context" else None,
        }
        changes = {
            "other id": {"subagent_affinity_id": "b"},
            "other role": {"role": "BOTH"},
            "other conversation": {"conversation_id": "c-2"},
        }
        headers = {
            "x-trtllm-subagent-affinity-id": "agent",
            "x-trtllm-subagent-affinity-auth": sign({**payload, **changes.get(case, {})}),
        }
        if case in ("missing", "no id"):
            del headers["x-trtllm-subagent-affinity-auth" if case == "missing" else "x-trtllm-subagent-affinity-id"]
        status, _answer = await post(client, stub, PATHS["chat"], body, **headers)
        assert status == (200 if case == "right" else 400)
