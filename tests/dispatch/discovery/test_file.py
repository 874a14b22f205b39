# ruff: noqa: ASYNC240 - the files are small and on this machine
"""Workers that a file names: how it may be replaced, and what of it is refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel import ConfigError
from plugins.dispatch.config import ModelConfig
from plugins.dispatch.discovery.file import FileDiscovery, read_workers
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig
from plugins.metrics import DISCOVERIES, child
from tests.dispatch.membership import gauges, pool_of, ready, until_ready, worker_at
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, running, until

pytestmark = pytest.mark.anyio

A, B = "http://a:1", "http://b:1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "workers.yaml"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change need not stay for long."""
    monkeypatch.setattr("plugins.dispatch.discovery.file.SETTLE_SECONDS", 0.01)


def model_of(path: Path, name: str = "m") -> ModelConfig:
    """A model whose workers a file names, which is looked at all the time."""
    return ModelConfig(name, discovery=FileDiscovery(path, poll_seconds=0.01))


def refused(logged: list[Any]) -> list[list[str]]:
    """The problems of each refusal."""
    return [line["problems"] for line in logged if line["event"] == "workers.refused"]


def urls(dispatch: Dispatch) -> list[str]:
    """All workers."""
    return [worker.url for worker in pool_of(dispatch).workers]


def write(path: Path, text: str) -> None:
    """Write over the file."""
    path.write_text(text)


def rename(path: Path, text: str) -> None:
    """Replace the file by renaming another one."""
    fresh = path.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(path)


def link(path: Path, text: str) -> None:
    """Replace the folder behind a symbolic link, as Kubernetes does with a ConfigMap."""
    folder = path.with_name(f"data-{len(list(path.parent.iterdir()))}")
    folder.mkdir()
    (folder / path.name).write_text(text)
    fresh = path.with_name("fresh")
    fresh.symlink_to(folder.name)
    fresh.replace(path.with_name("data"))
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        path.symlink_to(Path("data") / path.name)


@pytest.mark.parametrize("replace", [write, rename, link])
async def test_a_file_may_change_while_the_kernel_runs(path: Path, replace: Callable[[Path, str], None]) -> None:
    """However it is replaced."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second:
        replace(path, f"- {first.url}\n")
        async with running(model_of(path)) as dispatch:
            assert ready(dispatch) == [first.url]
            for text, there in (
                (f"[{first.url!r}, {{url: {second.url!r}, weight: 2}}]", [first.url, second.url]),
                (f'[{{"url": "{second.url}", "draining": false}}]', [second.url]),
                (f"# back\n- url: {first.url.upper()}/\n", [first.url]),
            ):
                replace(path, text)
                await until_ready(dispatch, there)
                assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
    assert gauges() == (0, 0, 0)


@pytest.mark.parametrize("start", ["", "[]", "- nothing\n", "missing"])
async def test_without_a_good_file_dispatch_starts_and_waits(path: Path, logged: list[Any], start: str) -> None:
    """It is not ready, says why, and goes on once there is one."""
    if start != "missing":
        path.write_text(start)
    async with scripted(answer_ok) as worker, running(model_of(path)) as dispatch:
        assert dispatch.unready() == ["m: no generation worker is ready"]
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 503
        assert len(refused(logged)) == 1
        path.write_text(f"- {worker.url}\n")
        await until_ready(dispatch, [worker.url])
        assert dispatch.unready() == []


BAD = {
    "empty": (b"", "there must be at least one worker"),
    "nobody": (b"[]\n", "let them drain"),
    "no list": (b"workers: []\n", "workers.yaml:1: expected a list, got {'workers': []}"),
    "malformed": (b"- http://a:1\n- {url: [\n", "workers.yaml:3: "),
    "half": (b'["http://a:1", "http://b', "workers.yaml:1: "),
    "no text": (b"- \xff\xfe\n", "no UTF-8 at byte 2"),
    "binary": (bytes(range(256)), "workers.yaml"),
    "too large": (b"#" * (1 << 20) + b"\n- http://a:1\n", "larger than 1 MiB"),
    "too deep": (b"[" * 5_000, "nested too deeply"),
    "bomb": (b"- &a [x, x]\n- &b [*a, *a, *a]\n- [*b, *b, *b]\n", "workers.yaml:1: [0]: expected str"),
    "code": (b"- !!python/object/apply:os.system [false]\n", "workers.yaml:1: "),
    "twice": (b"- http://a:1\n- {url: HTTP://A:1/}\n", "workers.yaml:2: [1]: the worker http://a:1 is named twice"),
    "two documents": (b"- http://a:1\n---\n- http://b:1\n", "workers.yaml:2: "),
    "unknown key": (b"- {url: 'http://a:1', wait: 1}\n", "[0].wait: unknown key 'wait', did you mean 'weight'?"),
    "no weight": (b"- {url: 'http://a:1', weight: 0}\n", "[0].weight: a worker's weight is from 0.01 to 100"),
    "endless weight": (b"- {url: 'http://a:1', weight: .inf}\n", "[0].weight: "),
    "no port": (b"- {url: 'http://a:1', bootstrap_port: 65536}\n", "[0].bootstrap_port: "),
    "perhaps draining": (b"- {url: 'http://a:1', draining: yes}\n", "[0].draining: expected bool, got 'yes'"),
    "no address": (b"- http://a:1\n- ftp://b\n", "workers.yaml:2: [1]: a worker's address is http://host:port"),
    "headers": (b'- "http://a:1/\\r\\nx: y"\n', "[0]: a worker's address is plain ASCII without spaces"),
    "metadata": (b"- http://u:secret@a:1\n", "[0]: a worker's address must not hold credentials; use api_key"),
    "a query": (b"- http://a:1/?x=1\n", "[0]: a worker's address has no query and a plain path"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_file_changes_nothing(path: Path, logged: list[Any], what: str) -> None:
    """It is told once, with its place, and counted once; and hides no later good one."""
    content, problem = BAD[what]
    model = f"bad {what}"
    counter = child(DISCOVERIES, model, "generation", "refused")
    async with scripted(answer_ok) as first, scripted(answer_ok) as second:
        rename(path, f"- {first.url}\n")
        async with running(model_of(path, model)) as dispatch:
            path.with_name("bad").write_bytes(content)
            path.with_name("bad").replace(path)
            await until(lambda: bool(refused(logged)))
            assert (ready(dispatch), first.probes) == ([first.url], 1)
            rename(path, f"- {first.url}\n- {second.url}\n")
            await until_ready(dispatch, [first.url, second.url])
            assert (first.probes, counter._value.get()) == (1, 1)
    ((told, *_),) = refused(logged)
    assert problem in told
    assert "secret" not in told


async def test_a_file_that_is_gone_changes_nothing(path: Path, logged: list[Any]) -> None:
    """Or cannot be read."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second:
        path.write_text(f"- {first.url}\n")
        async with running(model_of(path)) as dispatch:
            path.unlink()
            await until(lambda: len(refused(logged)) == 1)
            path.mkdir()
            await until(lambda: len(refused(logged)) == 2)
            path.rmdir()
            assert (ready(dispatch), worker_at(dispatch, first.url).up) == ([first.url], True)
            path.write_text(f"- {second.url}\n")
            await until_ready(dispatch, [second.url])
    reasons = [problems[0].rpartition(": ")[2] for problems in refused(logged)]
    assert reasons[:2] == ["no such file or directory", "not a regular file"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(path: Path, make: Callable[[Path], None]) -> None:
    """A pipe that nobody writes to would hold up even the end of the kernel."""
    make(path)
    with pytest.raises(OSError, match="not a regular file"):
        FileDiscovery(path).read()


def test_all_problems_of_a_file_are_told_together() -> None:
    """Of shapes, and of values."""
    content = b"- {url: 'http://a:1', weight: 0}\n- {weight: 1}\n- 7\n"
    with pytest.raises(ConfigError) as caught:
        read_workers(content, "w")
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["w:1", "w:2", "w:3"]
    with pytest.raises(ConfigError) as caught:
        read_workers(b"- a\n- http://a:1\n- http://a:1\n", "w")
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["w:1", "w:3"]


def test_a_file_says_of_workers_what_the_configuration_may() -> None:
    """A worker alone, or with what else there is to say of it."""
    content = b"- http://A:1\n- {url: 'http://b:1', weight: 2, bootstrap_port: 8998, draining: true}\n"
    assert read_workers(content, "w") == (WorkerConfig(A), WorkerConfig(B, 2.0, 8998, draining=True))
