"""No figure is taken of a gateway that leaves a leg out: the workers count, and tell what came to them."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.bodies import PATH, SGLANG, VLLM, make_context_answer, make_request
from bench.cases import SGLANG_PAIRS, VLLM_PAIRS, Setup
from bench.gateways import Pools, mock_worker
from bench.peers import workers
from bench.peers.workers import Ledger, write_peer_rules
from bench.processes import BenchError, Cores
from bench.programs import build_programs


@pytest.fixture(params=[VLLM_PAIRS, SGLANG_PAIRS], ids=lambda setup: setup.model)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Setup, Ledger]]:
    """Workers of an engine that run, and what they count."""
    rules = write_peer_rules(tmp_path, request.param.model, 5)
    with mock_worker(build_programs(), rules, Cores.of_this_machine().others) as port:
        yield request.param, Ledger(rules, Pools.of(request.param, port))


def post(url: str, **fields: Any) -> int:
    """The status of a worker's answer to a request with these fields."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request("POST", PATH, orjson.dumps(fields))
    status = connection.getresponse().status
    connection.close()
    return status


def legs_of(setup: Setup) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A request, and what a gateway makes of it for either worker."""
    asked = orjson.loads(make_request(setup.model, 500, stream=False))
    if setup.model == SGLANG:
        return asked, {**asked, "bootstrap_room": 7}, {**asked, "bootstrap_room": 7}
    handed = orjson.loads(make_context_answer(VLLM))["kv_transfer_params"]
    first = {**asked, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
    return asked, first, {**asked, "kv_transfer_params": handed}


def test_two_legs_are_seen(pair: tuple[Setup, Ledger]) -> None:
    """Both come to the workers, are counted once each, and belong together."""
    setup, ledger = pair
    asked, first, second = legs_of(setup)
    before = ledger.counts()
    assert post(ledger.pools.context[1], **first) == 200
    assert post(ledger.pools.generation[0], **second) == 200

    ledger.check(1, before)
    ledger.check_legs(orjson.dumps(asked))


def test_a_leg_that_is_missing_is_seen(pair: tuple[Setup, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that leaves the context worker out, or asks it twice, has no figure."""
    setup, ledger = pair
    asked, first, second = legs_of(setup)
    monkeypatch.setattr(workers, "SETTLE_SECONDS", 0.0)
    before = ledger.counts()
    assert post(ledger.pools.generation[0], **second) == 200
    with pytest.raises(BenchError, match="0 for the role 'context', 1 for the role 'generation'"):
        ledger.check(1, before)
    with pytest.raises(BenchError, match="nothing for the role 'context'"):
        ledger.check_legs(orjson.dumps(asked))
    for _ in range(2):
        assert post(ledger.pools.context[0], **first) == 200
    with pytest.raises(BenchError, match="2 for the role 'context'"):
        ledger.check(1, before)


def test_a_leg_without_its_handoff_is_seen(pair: tuple[Setup, Ledger]) -> None:
    """The prompt alone, another prompt, and a room that the other worker is not in."""
    setup, ledger = pair
    asked, first, second = legs_of(setup)
    assert post(ledger.pools.generation[0], **asked) == 400
    assert post(ledger.pools.context[0], **first) == 200
    assert post(ledger.pools.generation[0], **{**second, "messages": []}) == 200
    with pytest.raises(BenchError, match="nothing for the role 'generation'"):
        ledger.check_legs(orjson.dumps(asked))
    if setup is SGLANG_PAIRS:
        assert post(ledger.pools.generation[0], **{**second, "bootstrap_room": 8}) == 200
        with pytest.raises(BenchError, match=r"rooms \[7, 8\]"):
            ledger.check_legs(orjson.dumps(asked))
    else:
        assert post(ledger.pools.context[0], **{**first, "max_tokens": 2}) == 200
        assert post(ledger.pools.generation[0], **second) == 200
        with pytest.raises(BenchError, match="more than one token"):
            ledger.check_legs(orjson.dumps(asked))
