"""Which requests a fault hits, and which rules are none."""

from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import FaultRule, Stub, run_stub
from plugins.dispatch.embedded.stub.faults import KINDS, parse_header, parse_rule
from tests.stub.support import CHAT, PATHS, Body, context_body, post, texts

pytestmark = pytest.mark.anyio

STREAM: Body = {**CHAT, "stream": True}


async def test_a_rule_hits_so_many_requests(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A rule is used up by as many requests as it says, in the order of the rules; -1 is never used up."""
    plain.add_fault("status", status=503, times=2)
    plain.add_fault("status", status=429)
    plain.add_fault("status", status=500, times=-1)
    statuses = [(await post(client, plain, PATHS["chat"], CHAT))[0] for _ in range(5)]
    assert statuses == [503, 503, 429, 500, 500]
    plain.clear_faults()
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200


async def test_a_rule_hits_its_path_only(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Without a path a rule spares probes; with one it hits that path alone, a probe's too."""
    plain.add_fault("status", status=503)
    async with client.get(plain.url + "/health") as response:
        assert response.status == 200
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 503
    plain.add_fault("status", status=500, path="/health")
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200
    async with client.get(plain.url + "/health") as response:
        assert response.status == 500


async def test_a_rule_waits_for_a_request_that_it_can_hit(client: aiohttp.ClientSession, context: Stub) -> None:
    """A fault of streams is not used up by a request that is none, nor a lost handoff by one that has none."""
    context.add_fault("end_without_done")
    context.add_fault("no_handoff")
    await post(client, context, PATHS["chat"], CHAT)
    assert [rule.kind for rule in context.faults] == ["end_without_done", "no_handoff"]
    await post(client, context, PATHS["chat"], context_body(CHAT))
    assert [rule.kind for rule in context.faults] == ["end_without_done"]


async def test_a_fault_comes_before_a_refusal(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A body that would be refused meets the fault first, as a worker that is down looks at nothing."""
    plain.add_fault("status", status=503)
    assert (await post(client, plain, PATHS["chat"], {}))[0] == 503
    assert (await post(client, plain, PATHS["chat"], {}))[0] == 400


async def test_a_header_asks_for_a_fault(client: aiohttp.ClientSession, plain: Stub) -> None:
    """The header is obeyed only by a worker that was started for it, and a wrong one is refused."""
    fault = orjson.dumps({"kind": "status", "status": 418}).decode()
    assert (await post(client, plain, PATHS["chat"], CHAT, **{"x-stub-fault": fault}))[0] == 200
    async with run_stub("openai", allow_fault_header=True) as stub:
        assert (await post(client, stub, PATHS["chat"], CHAT, **{"x-stub-fault": fault}))[0] == 418
        assert (await post(client, stub, PATHS["chat"], CHAT, **{"x-stub-fault": "nonsense"}))[0] == 400
        assert (await post(client, stub, PATHS["chat"], CHAT, **{"x-stub-fault": "{"}))[0] == 400
        slow = '{"kind": "slow", "seconds": 0.001}'
        status, answer = await post(client, stub, PATHS["chat"], CHAT, **{"x-stub-fault": slow})
        assert (status, len(texts(answer))) == (200, 1)
        async with client.post(
            stub.url + PATHS["chat"], json=STREAM, headers={"x-stub-fault": "end_without_done"}
        ) as response:
            assert b"[DONE]" not in await response.read()
        with pytest.raises(aiohttp.ClientOSError):
            await post(client, stub, PATHS["chat"], CHAT, **{"x-stub-fault": '{"kind": "refuse", "seconds": 60}'})
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(client, stub, PATHS["chat"], CHAT)


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "explode"},
        {"kind": None},
        {"kind": "status", "status": 200},
        {"kind": "status", "status": "503"},
        {"kind": "status", "headers": {"a": "b\r\nc"}},
        {"kind": "status", "headers": {"a": 1}},
        {"kind": "status", "headers": []},
        {"kind": "hang", "times": 0},
        {"kind": "hang", "times": True},
        {"kind": "hang", "path": 5},
        {"kind": "cut_mid_event", "after": -1},
        {"kind": "slow", "seconds": -0.1},
        {"kind": "slow", "seconds": "1"},
        {"kind": "slow", "speed": 1},
        {},
        [],
        "hang",
        None,
    ],
)
def test_a_wrong_rule_is_refused(rule: Any) -> None:
    """A rule that makes no sense is an error, so that a typing error does not look like a passed test."""
    with pytest.raises(ValueError, match="fault: "):
        parse_rule(rule)


def test_every_kind_is_a_rule() -> None:
    """Each kind alone is a rule, and goes through JSON and back."""
    for kind in KINDS:
        assert parse_header(f" {kind} ") == FaultRule(kind=kind)
        assert parse_rule(orjson.loads(orjson.dumps(FaultRule(kind=kind).to_json()))) == FaultRule(kind=kind)
