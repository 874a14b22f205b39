"""The benchmark of the peers runs without them, tells what is missing, and judges what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.bodies import SGLANG, VLLM
from bench.cases import SGLANG_PAIRS, TRTLLM_PAIRS, VLLM_PAIRS, Setup
from bench.gateways import FLOOR_D, KERNEL, Pools
from bench.peers.cases import CASES, GOALS, PREFIX, ROUND_ROBIN, TAIL_GOALS
from bench.peers.environments import fingerprint, peers_folder
from bench.peers.measure import starts_for
from bench.peers.report import judge, markdown, text
from bench.peers.routers import PEERS

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
ALONE = (f"--gateway={KERNEL}", f"--gateway={FLOOR_D}")


def run_peers(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A quick run that finds what is installed in `home`."""
    command = [sys.executable, "-m", "bench.peers", "--quick", *arguments]
    variables = {**os.environ, "ENGINES_HOME": str(home)}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=500, check=False)


def pretend(peer: str, program: str, script: str) -> None:
    """Have a program where a peer is looked for."""
    folder = peers_folder() / peer / "bin"
    folder.mkdir(parents=True)
    folder.joinpath(program).write_text(f"#!/bin/sh\n{script}\n")
    folder.joinpath(program).chmod(0o755)
    folder.parent.joinpath(".complete").write_text(fingerprint())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for peers, which is empty."""
    monkeypatch.setenv("ENGINES_HOME", str(tmp_path))
    return tmp_path


def test_the_kernel_is_measured_without_peers(home: Path) -> None:
    """Each engine's pairs and one leg: a figure of each gateway, what is to be reached, and who never takes part."""
    names = [VLLM, SGLANG, "round_robin_256"]
    done = run_peers(home, *ALONE, *(f"--case={name}" for name in names), f"--output={home}")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(home.joinpath("peers.json").read_text())
    shown = home.joinpath("peers.md").read_text()

    assert [name for name in data["cases"] if not name.startswith("memory")] == names
    assert all(list(case["gateways"]) == [FLOOR_D, KERNEL] for case in data["cases"].values())
    assert [goal["case"] for goal in data["goals"]] == names
    assert data["failures"] == []
    assert data["environment"]["smg"] == "1.13.0"
    assert data["environment"]["load_before"] >= 0
    assert f"| {FLOOR_D} | {KERNEL} | to reach | in this run |" in shown
    assert "vllm-router has no figures for sglang" in shown
    assert "mean nothing" in done.stdout
    assert "to reach" in done.stdout


def test_a_peer_that_is_missing_is_told(home: Path) -> None:
    """With the target that installs it; nothing is measured."""
    done = run_peers(home, "--case=vllm")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "smg 1.13.0 is not installed: `make bench-peers` does it" in done.stderr


def test_a_peer_that_fails_leaves_the_others_their_figures(home: Path) -> None:
    """The table is made of those, and the end is an error."""
    pretend("vllm-router", "vllm-router", "exit 3")
    done = run_peers(home, f"--gateway={KERNEL}", "--gateway=vllm-router", "--case=round_robin", f"--output={home}")
    data = json.loads(home.joinpath("peers.json").read_text())

    assert done.returncode == 1
    assert list(data["cases"]["round_robin"]["gateways"]) == [KERNEL]
    (failure,) = data["failures"]
    assert failure["gateway"] == "vllm-router"
    assert "does not serve 2 workers; started as: env NO_PROXY=*" in failure["reason"]
    assert failure["reason"] in done.stdout


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("setup", [ROUND_ROBIN, PREFIX, VLLM_PAIRS, SGLANG_PAIRS], ids=lambda setup: setup.name)
def test_a_peer_is_told_its_workers_and_no_more(setup: Setup) -> None:
    """Each worker once, by its role; beside them an address, a policy, and a place for metrics."""
    pools = Pools.of(setup, 1)
    for peer in PEERS:
        if setup.model not in peer.serves:
            continue
        pretend(peer.name, "python", "")
        command = peer.command(setup, pools, 80)
        told = [word for word in command if word.startswith("http://127.0")]
        later = setup.model in peer.introduces
        assert told == ([] if later else [*pools.one, *pools.context, *pools.generation])
        options = [word for word in command if word.startswith("--")]
        usual = ["--host", "--port", "--policy", "--prometheus-host", "--prometheus-port"]
        assert {*options} - {*usual} <= {"--worker-urls", "--prefill", "--decode", peer.pairs}
        assert command[command.index("--policy") + 1] == ("cache_aware" if setup is PREFIX else "round_robin")


def judged(own: float, *others: float) -> Any:
    """What is said of a case whose goal is 80 and below all, with medians of the kernel and of two peers."""
    medians = dict(zip([KERNEL, "smg", "vllm-router"], [own, *others], strict=False))
    figures = {name: {"lowest": value, "median": value, "highest": value} for name, value in medians.items()}
    case = {"title": "t", "unit": "us/request", "model": VLLM, "latency": "whole", "gateways": figures}
    document = {"environment": {}, "rounds": 1, "quick": False, "cases": {"vllm": case}}
    return judge(document, {}, 0.0)


@pytest.mark.parametrize(
    ("medians", "met", "reason"),
    [
        ((79.9, 111, 85), True, "met"),
        ((80.0, 111, 80.1), True, "met"),
        ((81.5, 111, 85), False, "missed by 1.5, but below all peers: vllm-router has 85.0"),
        ((81.5, 70, 85), False, "missed by 1.5: smg has 70.0"),
        ((81.5,), False, "missed by 1.5"),
        ((70.0, 111, 69.5), False, "missed by 0.5: vllm-router has 69.5"),
        ((70.0, 70.0), False, "missed by 0.0: smg has 70.0"),
        ((70.0,), None, "no peer was measured"),
    ],
)
def test_a_goal_is_met_at_most_and_below_all(medians: tuple[float, ...], met: bool | None, reason: str) -> None:
    """Both, and only of figures that were measured in this run."""
    document = judged(*medians)

    assert [(goal["met"], goal["reason"]) for goal in document["goals"]] == [(met, reason)]
    assert f"80 or less, below all peers: {reason}" in text(document)
    assert f"| 80 or less, below all peers | {reason} |" in markdown(document)


def test_goals_are_those_of_cases() -> None:
    """Each has its case, and names of cases and titles are told once."""
    names = {case.name for case in CASES}
    assert {*GOALS, *TAIL_GOALS} <= names | {"memory_rest", "memory_streams"}
    assert len(names) == len({case.title for case in CASES}) == len(CASES)
    assert {rival for goal in GOALS.values() for rival in goal.rivals} <= names


def test_who_takes_part_is_who_can() -> None:
    """No peer pairs workers of TensorRT-LLM, and no floor has a policy."""
    of = {case.name: [*starts_for(case, ())] for case in CASES}

    assert of["vllm"][-2:] == ["smg", "vllm-router"]
    assert of["sglang"][-2:] == ["smg", "sglang-router"]
    assert of["trtllm"] == [*of["vllm"][:-2]]
    assert of["prefix"] == [KERNEL, "smg", "vllm-router", "sglang-router"] == of["memory"]
    assert {case.setup.model for case in CASES if case.setup is TRTLLM_PAIRS} == {"trtllm"}
