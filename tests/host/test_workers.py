"""`kernel run --workers 2`: several processes on one port, as one instance."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.host.child import Child
from tests.host.process import FakeWorker, Kernel, alive, config_text, running, start
from tests.host.terminal import install
from tests.host.test_reload import invoke, replace
from tests.host.wire import until

MESSAGE = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of the processes are the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def pids(kernel: Kernel) -> list[int]:
    """The processes that serve."""
    return [state.pid for state in kernel.serving()]


def total_requests(kernel: Kernel) -> float:
    """What the metrics say of all processes together."""
    text = kernel.ask("/metrics", method="GET").body.decode()
    (line,) = [line for line in text.splitlines() if line.startswith("total_requests_total ")]
    return float(line.split()[1])


def test_processes_have_numbers(config: Path) -> None:
    """Ids of handoffs are made of the number, so that two processes of a machine never make the same one."""
    with running(config, "--workers", "2") as kernel:
        environments = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids(kernel)]

    numbers = [entry for entries in environments for entry in entries if entry.startswith(b"TRTLLM_DISAGG_WORKER")]
    assert sorted(numbers) == [b"TRTLLM_DISAGG_WORKER_PROCESS_ID=0", b"TRTLLM_DISAGG_WORKER_PROCESS_ID=1"]


def test_both_serve(config: Path) -> None:
    """Each process answers on the one port, and the metrics of either are those of both."""
    with running(config, "--workers", "2") as kernel:
        first, second = pids(kernel)
        for pid in (first, second):
            os.kill(pid, signal.SIGSTOP)
            try:
                assert kernel.ask(body=MESSAGE).status == 200
            finally:
                os.kill(pid, signal.SIGCONT)
        assert total_requests(kernel) == 2
        assert kernel.instance().state.workers == 2
        shown = invoke("plugins", "--config", str(config)).stdout
        assert shown.count("running: ") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop(config: Path, tmp_path: Path, number: signal.Signals) -> None:
    """A signal to the first process ends all in order, with 0, and nothing stays behind."""
    with running(config, "--workers", "2") as kernel:
        processes = pids(kernel)
        stream = kernel.open_stream()
        kernel.signal(number)
        (answer,) = stream.answers()
        assert b"shutting_down" in answer.body
        assert kernel.wait() == 0
        assert alive(processes) == []
        assert not list(tmp_path.glob("disagg-kernel-metrics-*"))
        assert not list((tmp_path / "run").rglob("*.json"))


def test_second_signal(config: Path, worker: FakeWorker) -> None:
    """A second signal ends all of them at once, with 1."""
    config.write_text(config_text(worker).replace("0.3", "600"))
    with running(config, "--workers", "2") as kernel:
        processes = pids(kernel)
        stream = kernel.open_stream()
        kernel.signal(signal.SIGTERM)
        until(lambda: "server.stopping" in kernel.events())
        kernel.signal(signal.SIGTERM)
        assert kernel.wait() == 1
        until(lambda: not alive(processes))
        stream.connection.close()


def test_process_that_dies(config: Path) -> None:
    """A process that dies is replaced, the other serves on, and counters do not go back."""
    with running(config, "--workers", "2") as kernel:
        for _ in range(6):
            assert kernel.ask(body=MESSAGE).status == 200
        first, second = pids(kernel)
        os.kill(first, signal.SIGKILL)
        until(lambda: alive([first]) == [])
        assert kernel.ask(body=MESSAGE).status == 200
        until(lambda: second in pids(kernel) and len(set(pids(kernel)) - {first}) == 2)
        assert "process.died" in kernel.events()
        assert total_requests(kernel) == 7


def test_supervisor_that_is_killed(config: Path) -> None:
    """When the first process is killed none of the others stays."""
    with running(config, "--workers", "2") as kernel:
        processes = pids(kernel)
        kernel.signal(signal.SIGKILL)
        kernel.wait()
        until(lambda: alive(processes) == [])


def test_reload(config: Path, worker: FakeWorker) -> None:
    """`kernel reload` has all processes reload, and tells each problem once."""
    with running(config, "--workers", "2") as kernel:
        replace(config, config_text(worker, "other"))
        result = invoke("reload", str(config))
        assert result.exit_code == 0, result.stderr
        assert f"reloaded, pid {kernel.process.pid} " in result.stdout
        assert [state.hangups for state in kernel.serving()] == [1, 1]
        for pid in pids(kernel):
            os.kill(pid, signal.SIGSTOP)
            try:
                assert kernel.models() == ["other"]
            finally:
                os.kill(pid, signal.SIGCONT)
        config.write_text("nonsense: true\n")
        result = invoke("reload", str(config))
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert kernel.models() == ["other"]


def test_bad_configuration(config: Path) -> None:
    """A bad configuration is told once, before any process is started."""
    config.write_text("listen: 127.0.0.1:0\nnonsense: true\n")
    with start(config, "--workers", "2") as process:
        assert process.wait(20) == 2
    assert len(Path(f"{config}.err").read_text().splitlines()) == 1


def test_processes_that_do_not_start(config: Path, worker: FakeWorker, tmp_path: Path) -> None:
    """Processes that die before they serve are not started again and again: exit code 1."""
    source = """
from attrs import frozen
from kernel import PluginSpec

@frozen
class Broken:
    async def __call__(self, exchange, call_next):
        return await call_next(exchange)

    async def start(self):
        raise OSError("nothing to start with")

    async def stop(self):
        pass

PLUGIN = PluginSpec("broken", Broken, before="dispatch")
"""
    install(tmp_path / "site", "broken", source)
    config.write_text(config_text(worker).replace("plugins:", "plugins:\n  broken: {}"))
    with start(config, "--workers", "2", environment={"PYTHONPATH": str(tmp_path / "site")}) as process:
        assert process.wait(20) == 1
    errors = Path(f"{config}.err").read_text()
    assert "plugin 'broken' did not start: OSError: nothing to start with" in errors
    assert "processes.given_up" in errors
    assert "Traceback" not in errors


def test_pauses_grow() -> None:
    """A process that dies before it serves is started later each time; one that served, soon."""
    child, dues = Child(), []
    for _ in range(9):
        child.clear(0.0)
        dues.append(child.due)
    assert dues[:3] == [1.0, 2.0, 4.0]
    assert max(dues) == 30.0
    child.serves = True
    child.clear(0.0)
    assert child.due == 0.5


def test_link_that_breaks() -> None:
    """A process ends when the other end of its link is closed, whatever it is doing."""
    program = "import sys, time; from plugins.host.child import Link; Link(int(sys.argv[1])); time.sleep(600)"
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        process = subprocess.Popen([sys.executable, "-c", program, str(number)], pass_fds=[number])
    ours.close()
    assert process.wait(20) == 1
