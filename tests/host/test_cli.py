"""The command line in this process: what it prints, and its exit codes."""

import platform
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from attrs import frozen
from click.testing import CliRunner, Result

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.host.cli import cli
from plugins.host.failure import KernelGroup
from plugins.order import STANDARD_ORDER
from tests.host.distribution import POOL
from tests.kernel.support import Shelf


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file with one model."""
    path = tmp_path / "kernel.yaml"
    path.write_text(f"plugins:\n  {POOL}\n")
    return path


def invoke(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, words)


def test_version() -> None:
    """The version is that of the distribution, with the Python that runs it."""
    result = invoke("version")
    assert result.stdout == f"kernel {version('disagg-kernel')}, Python {platform.python_version()}\n"
    assert result.exit_code == 0


@pytest.mark.parametrize("words", [[], ["run"], ["check"], ["plugins"], ["reload"], ["version"]])
def test_help(words: list[str]) -> None:
    """Every command has help with examples, line by line, and shows no hidden option."""
    result = invoke(*words, "--help")
    assert result.exit_code == 0
    assert f"\n    {' '.join(['kernel', *words])}" in result.stdout.partition("Examples:")[2]
    assert "--fd" not in result.stdout
    assert "--link" not in result.stdout


@pytest.mark.parametrize(
    "words",
    [["serve"], ["run", "--workers", "0"], ["run", "--log-level", "loud"], ["check"], ["version", "--loud"]],
)
def test_usage(words: list[str]) -> None:
    """Wrong usage is one line that says where help is, and exit code 2."""
    result = invoke(*words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("kernel: error: ")
    assert "--help`)" in line


@pytest.mark.parametrize("listen", ["8000", "host", "127.0.0.1:99999", ":80", "[::1", "a b:80"])
def test_listen_that_is_no_address(config: Path, listen: str) -> None:
    """An address that is none is wrong usage."""
    result = invoke("run", str(config), "--listen", listen)
    assert result.exit_code == 2
    assert "--listen" in result.stderr
    assert "expected host:port" in result.stderr


def test_faults_have_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault is one line with its kind and a hint; the traceback comes when it is asked for."""

    @click.group(cls=KernelGroup)
    def group() -> None:
        """Stand in for the real one."""

    @group.command()
    def broken() -> None:
        raise ZeroDivisionError("not meant")

    result = CliRunner().invoke(group, ["broken"])
    assert result.exit_code == 1
    assert result.stderr.startswith("kernel: error: ZeroDivisionError: not meant\n")
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("KERNEL_TRACEBACK", "1")
    assert "Traceback" in CliRunner().invoke(group, ["broken"]).stderr


@frozen
class Lame:
    """A plugin that cannot start."""

    async def start(self) -> None:
        """Fail."""
        raise OSError("no licence server")

    async def stop(self) -> None:
        """Have nothing to give back."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass everything on."""
        return await call_next(exchange)


def test_check(config: Path) -> None:
    """A good file is one line."""
    result = invoke("check", str(config))
    assert result.exit_code == 0
    assert result.stdout == f"{config}: ok, {len(STANDARD_ORDER)} plugins, listen 127.0.0.1:8000\n"
    assert result.stderr == ""
    config.write_text(f"plugins:\n  access_log: {{enabled: false}}\n  {POOL}\n")
    assert f"ok, {len(STANDARD_ORDER) - 1} plugins and 1 off, " in invoke("check", str(config)).stdout


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("lisen: x\ngrace_seconds: soon\n", [":1: lisen: unknown key", ":2: grace_seconds: expected float"]),
        ("plugins: {tenant_gat: {}}\n", [":1: plugins.tenant_gat: no such plugin"]),
        ("plugins: {gate: {before: gate2}}\n", ["anchored to 'gate2', which does not exist"]),
        ("plugins: {gate: {config: {limt: 1}}}\n", [":1: plugins.gate.config.limt: unknown key 'limt'"]),
        ("listen: 192.0.2.1:80\n", ["192.0.2.1:80 can be reached from other machines"]),
        ("a: b: c\n", [":1: "]),
    ],
)
def test_check_of_a_bad_file(config: Path, gate: None, text: str, problems: list[str]) -> None:
    """Every problem is a line on standard error, with its place, and the exit code is 2."""
    config.write_text(text)
    result = invoke("check", str(config))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert all(line.startswith("kernel: error: ") for line in lines)
    for problem in problems:
        assert any(problem in line for line in lines), lines


def test_check_of_a_plugin_that_does_not_start(config: Path, shelf: Shelf) -> None:
    """A plugin that could not be started when the kernel runs is found before."""
    shelf.put(PluginSpec("lame", Lame, after="access_log"))
    config.write_text(f"plugins:\n  lame:\n  {POOL}\n")
    result = invoke("check", str(config))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plugin 'lame' did not start: OSError: no licence server" in result.stderr


def test_check_of_a_reachable_address(config: Path) -> None:
    """What `run` would serve is fine here too: allowed by the file, or by the command line."""
    config.write_text("listen: 0.0.0.0:80\n")
    assert invoke("check", str(config), "--insecure").exit_code == 0
    config.write_text("listen: 0.0.0.0:80\ninsecure: true\n")
    assert invoke("check", str(config)).exit_code == 0


def test_check_of_a_missing_file(tmp_path: Path) -> None:
    """A file that cannot be read is a problem of the configuration."""
    result = invoke("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert result.stderr == f"kernel: error: {tmp_path}/none.yaml: cannot be read: no such file or directory\n"
