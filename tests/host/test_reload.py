"""Reload in a process of its own: by SIGHUP, by `kernel reload`, and by a change of the file."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plugins.host.cli import cli
from tests.host.process import FakeWorker, config_text, running
from tests.host.wire import until


@pytest.fixture
def unwatched(config: Path) -> dict[str, str]:
    """What keeps a kernel from looking at its file by itself, so that a test can tell who asked for a reload."""
    folder = config.with_name("site")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import plugins.host.source\nplugins.host.source.POLL_SECONDS = 3600\n")
    return {"PYTHONPATH": str(folder)}


def replace(path: Path, text: str) -> None:
    """Change a file in one step."""
    fresh = path.with_name("fresh.yaml")
    fresh.write_text(text)
    fresh.replace(path)


def invoke(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, words)


def test_hangup(config: Path, worker: FakeWorker, unwatched: dict[str, str]) -> None:
    """SIGHUP reads the file again; a stream that runs meanwhile is not disturbed."""
    with running(config, environment=unwatched) as kernel:
        assert kernel.models() == ["tiny"]
        stream = kernel.open_stream()
        replace(config, config_text(worker, "other"))
        kernel.signal(signal.SIGHUP)
        until(lambda: kernel.models() == ["other"])
        worker.release()
        stream.read_until(b"data: [DONE]")
        stream.connection.close()
        state = until(lambda: next((state for state in kernel.serving() if state.hangups), None))
        assert (state.hangups, state.reloads, state.refused) == (1, 1, ())
        assert state.last_reload is not None


def test_command(config: Path, worker: FakeWorker, unwatched: dict[str, str]) -> None:
    """`kernel reload` waits for the result, with or without the file's name."""
    with running(config, environment=unwatched) as kernel:
        for number, words in enumerate(([str(config)], []), 1):
            replace(config, config_text(worker, f"model{number}"))
            result = invoke("reload", *words)
            assert result.exit_code == 0, result.stderr
            assert result.stdout == f"reloaded, pid {kernel.process.pid} on {kernel.instance().state.listen}\n"
            assert kernel.models() == [f"model{number}"]


def test_command_with_a_bad_file(config: Path, worker: FakeWorker, unwatched: dict[str, str]) -> None:
    """A bad file changes nothing; its problems are told by the command, by `kernel plugins`, and in the log."""
    with running(config, environment=unwatched) as kernel:
        replace(config, config_text(worker, "other", "lisen: x\ngrace_secs: 1"))
        result = invoke("reload", str(config))
        assert result.exit_code == 2
        first, second = result.stderr.splitlines()
        assert first.startswith(f"kernel: error: {config}:3: lisen: unknown key")
        assert second.startswith(f"kernel: error: {config}:4: grace_secs: unknown key")
        assert kernel.models() == ["tiny"]
        assert kernel.events().count("chain.refused") == 1
        meanwhile = invoke("plugins", "--config", str(config))
        assert (meanwhile.exit_code, meanwhile.stdout.count("last reload refused: ")) == (2, 2)
        replace(config, config_text(worker))
        shown = invoke("plugins", "--config", str(config)).stdout
        assert f"running: pid {kernel.process.pid} on {kernel.instance().state.listen}" in shown
        assert shown.count("last reload refused: ") == 2
        assert invoke("reload").exit_code == 0
        assert "last reload" not in invoke("plugins", "--config", str(config)).stdout


def test_command_without_an_instance(config: Path) -> None:
    """With nothing to reload the command says so and exits with 1."""
    for words, expected in (([], "no instance runs"), ([str(config)], f"no instance runs with {config}")):
        result = invoke("reload", *words)
        assert (result.exit_code, result.stderr) == (1, f"kernel: error: {expected}\n")


def test_command_with_several_instances(config: Path, worker: FakeWorker, unwatched: dict[str, str]) -> None:
    """With several instances the command says which there are; the file's name chooses one."""
    other = config.with_name("other.yaml")
    other.write_text(config_text(worker))
    with running(config, environment=unwatched) as one, running(other, environment=unwatched) as two:
        result = invoke("reload")
        assert result.exit_code == 1
        for kernel in (one, two):
            assert f"pid {kernel.process.pid} on {kernel.instance().state.listen}" in result.stderr
        assert invoke("reload", str(other)).exit_code == 0
        assert [kernel.serving()[0].reloads for kernel in (one, two)] == [0, 1]


def test_command_from_another_folder(config: Path, unwatched: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may be named in any way that leads to it."""
    link = config.with_name("link.yaml")
    link.symlink_to(config.name)
    with running(config, environment=unwatched):
        monkeypatch.chdir(config.parent)
        for words in (config.name, f"./{config.name}", link.name):
            assert invoke("reload", words).exit_code == 0


def replace_file(config: Path, text: str) -> None:
    """Put another file in its place."""
    replace(config, text)


def rewrite_file(config: Path, text: str) -> None:
    """Change it in place."""
    config.write_text(text)


def swap_folder(config: Path, text: str) -> None:
    """Swap the symbolic link to the folder that holds it, as a mounted configuration map does."""
    fresh = config.parent.parent / "fresh"
    fresh.mkdir()
    (fresh / config.name).write_text(text)
    link = config.parent.parent / "link"
    link.symlink_to("fresh")
    link.replace(config.parent)


@pytest.mark.parametrize("change", [replace_file, rewrite_file, swap_folder])
def test_change_of_the_file(tmp_path: Path, worker: FakeWorker, change: Callable[[Path, str], None]) -> None:
    """A change of the content is found, however it came about."""
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "kernel.yaml").write_text(config_text(worker))
    (tmp_path / "current").symlink_to("first")
    config = tmp_path / "current" / "kernel.yaml"
    with running(config) as kernel:
        change(config, config_text(worker, "changed"))
        until(lambda: kernel.models() == ["changed"])
        assert kernel.serving()[0].hangups == 0


def test_file_that_is_missing_or_bad(config: Path, worker: FakeWorker) -> None:
    """A missing or bad file changes nothing, and the next good one is taken; what needs a new start is told."""
    with running(config) as kernel:
        config.unlink()
        until(lambda: "configuration.unreadable" in kernel.events())
        config.write_text("nonsense: true\n")
        until(lambda: "chain.refused" in kernel.events())
        assert kernel.models() == ["tiny"]
        config.write_text(config_text(worker, "good", "keep_alive_seconds: 9"))
        until(lambda: kernel.models() == ["good"])
        until(lambda: "settings.need_restart" in kernel.events())


def test_embedded_default_has_no_file(tmp_path: Path) -> None:
    """A file that is not there is not taken for the embedded default."""
    result = invoke("reload", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
