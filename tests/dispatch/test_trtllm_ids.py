"""Request ids of handoffs."""

import os
import time

import orjson
import pytest

from plugins.dispatch.engine import Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.trtllm_ids import _Ids
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import Payload


def test_ids_are_in_the_range_of_the_protocol() -> None:
    """Smaller ones are the workers' own; larger ones do not fit a signed integer of 64 bits."""
    ids = _Ids()
    assert all(2**40 <= ids.mint(node) < 2**63 for node in range(256))


def test_ids_of_one_process_differ_however_fast_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when more are made than a millisecond has numbers, and when the clock stands or is set back."""
    moments = iter([5_000_000_000] * 3000 + [4_000_000_000] * 1000 + [5_000_000_000] * 1000)
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))
    ids = _Ids()
    assert len({ids.mint(1) for _ in range(5000)}) == 5000


def test_nodes_and_processes_keep_ids_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same moment gives different ids on each node and in each process."""
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    made = set()
    for process in range(64):
        monkeypatch.setenv("TRTLLM_DISAGG_WORKER_PROCESS_ID", str(process))
        made |= {_Ids().mint(node) for node in range(256)}
    assert len(made) == 64 * 256


def test_a_process_without_a_number_is_told_apart_by_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of one port are forked one after the other."""
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    monkeypatch.setenv("TRTLLM_DISAGG_WORKER_PROCESS_ID", "x")
    mine = _Ids().mint(0)
    another = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: another)
    assert _Ids().mint(0) != mine


def test_all_engines_of_a_process_share_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a reload two versions of an engine make ids in the same millisecond."""
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    request = Request(CHAT_COMPLETIONS, Payload(b"", {"messages": []}), stream=False)
    bodies = [TrtllmEngine(node_id=1).body(Role.CONTEXT, request, None).content for _ in range(2)]
    first, second = (orjson.loads(body)["disaggregated_params"]["disagg_request_id"] for body in bodies)
    assert first != second
