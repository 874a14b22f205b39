"""`kernel plugins` in this process: the chain as a table and as data, and one plugin in full."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from plugins.host.cli import cli
from plugins.order import STANDARD_ORDER
from tests.host.distribution import POOL


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file with one model."""
    path = tmp_path / "kernel.yaml"
    path.write_text(f"plugins:\n  {POOL}\n")
    return path


def invoke(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, words)


def invoke_json(*words: str) -> Any:
    """Run a command that prints JSON."""
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_plugins(config: Path) -> None:
    """The chain is a table of one line for each plugin when no terminal reads it, without colours."""
    for words in ([], ["--config", str(config)]):
        result = invoke("plugins", *words)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout
        header, *lines = result.stdout.splitlines()
        assert header.split() == ["#", "plugin", "switch", "needs", "fills", "from", "why", "there"]
        assert [line.split()[1] for line in lines] == [line.name for line in STANDARD_ORDER]
        for line, shown in zip(STANDARD_ORDER, lines, strict=True):
            assert shown.endswith(line.reason)
            assert f"disagg-kernel {version('disagg-kernel')}" in shown
            assert " on (default) " in shown


def test_plugins_switched_by_the_file(config: Path, gate: None) -> None:
    """The table tells what is off and who said so, and lists what is installed and not named."""
    shown = {line.split()[0]: line for line in invoke("plugins", "--config", str(config)).stdout.splitlines()}
    assert shown["gate"].split() == ["gate", "installed,", "off", "gate", "1.2"]
    assert "gate_plugin" not in sys.modules
    text = f"plugins:\n  access_log: {{enabled: false}}\n  gate: {{before: dispatch}}\n  {POOL}\n"
    config.write_text(text)
    lines = {line.split()[1]: line for line in invoke("plugins", "--config", str(config)).stdout.splitlines()}
    assert " off (file) " in lines["access_log"]
    assert " on (file) " in lines["gate"]
    assert lines["gate"].endswith("before dispatch")
    assert list(lines).index("gate") == list(lines).index("dispatch") - 1
    config.write_text(text.replace("before: dispatch", "enabled: false"))
    last = invoke("plugins", "--config", str(config)).stdout.splitlines()[-1]
    assert last.split() == ["gate", "off", "(file)", "gate", "1.2"]


def test_plugins_as_json(config: Path, gate: None) -> None:
    """The same as data, under keys that stay."""
    data = invoke_json("plugins", "--config", str(config))
    assert list(data) == ["config", "plugins", "installed", "instances"]
    assert data["config"] == str(config)
    assert [plugin["position"] for plugin in data["plugins"]] == list(range(1, len(STANDARD_ORDER) + 1))
    assert data["plugins"][-1] == {
        "position": len(STANDARD_ORDER),
        "name": "dispatch",
        "on": True,
        "by": "default",
        "reason": STANDARD_ORDER[-1].reason,
        "required": True,
        "needs": data["plugins"][-1]["needs"],
        "fills": data["plugins"][-1]["fills"],
        "distribution": "disagg-kernel",
        "version": version("disagg-kernel"),
    }
    assert "payload" in data["plugins"][-1]["needs"]
    expected = {"name": "gate", "on": False, "by": "default", "distribution": "gate", "version": "1.2"}
    assert data["installed"] == [expected]
    assert data["instances"] == []


def test_one_plugin(config: Path, gate: None) -> None:
    """One plugin in full: what it is for, where it stands and why, its fields with types and defaults."""
    result = invoke("plugins", "gate", "--config", str(config))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "gate\n\n  Refuse [bold]nothing[/bold].\n\n  It only counts.\n\n"
        "position: none; it would stand after template_guard\n"
        "switch:   installed, off\n"
        "from:     gate 1.2\n\n"
        "fields:\n  header: str, default 'x-gate'\n  limit: int | None, default None\n"
    )
    config.write_text(f"plugins:\n  gate: {{}}\n  {POOL}\n")
    data = invoke_json("plugins", "gate", "--config", str(config))
    assert (data["on"], data["by"], data["reason"]) == (True, "file", "after template_guard")
    assert data["fields"][0] == {"name": "header", "type": "str", "default": "'x-gate'", "required": False}


@pytest.mark.parametrize("line", STANDARD_ORDER, ids=lambda line: line.name)
def test_each_standard_plugin(line: Any) -> None:
    """Every standard plugin says what it does and can be shown."""
    data = invoke_json("plugins", line.name)
    assert data["doc"]
    assert data["reason"] == line.reason
    shown = invoke("plugins", line.name).stdout
    assert f"position: {data['position']}\n" in shown


def test_plugin_that_does_not_exist() -> None:
    """A name that nothing has leads to the nearest one."""
    result = invoke("plugins", "dispach")
    assert result.exit_code == 2
    assert "did you mean 'dispatch'?" in result.stderr


def test_plugins_of_a_bad_file(config: Path) -> None:
    """A file that cannot be used has no chain to show."""
    config.write_text("nonsense: 1\n")
    result = invoke("plugins", "--config", str(config))
    assert (result.exit_code, result.stdout) == (2, "")


def test_plugins_without_a_folder_for_instances(state_folder: Path) -> None:
    """Whoever cannot look for instances can still look at the chain."""
    (state_folder / "disagg-kernel").write_text("in the way")
    assert invoke("plugins").exit_code == 0
    result = invoke("reload")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
