"""What the documentation says exists: paths, targets, commands, keys, and the plugin in fifteen lines."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import attrs
import pytest

from plugins import parse_document
from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.config import HealthConfig, ModelConfig, RoleConfig
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.retry import RetryConfig
from plugins.dispatch.transports.tls import TlsConfig
from plugins.dispatch.worker_config import WorkerConfig
from plugins.host.cli import cli
from tests.meta.sources import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]
PLUGIN = ROOT / "tests" / "third_party" / "tenant_gate" / "tenant_gate.py"
FOLDERS = ("kernel", "plugins", "tests", "deploy", "bench", "docs", ".ci")
TARGETS = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
ALLOW_TOP_LEVEL_AWAIT = 0x2000
"""CPython's PyCF_ALLOW_TOP_LEVEL_AWAIT: examples await without a function around them."""


def identify(page: Path) -> str:
    """The page's path from the root of the project."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path, language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def prose_of(page: Path) -> str:
    """The text without blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """Everything that is shown to be typed into a shell."""
    blocks = "\n".join(blocks_of(page, "(?:console|sh|bash)"))
    lines = [line.removeprefix("$ ").partition("#")[0] for line in blocks.splitlines()]
    return [*lines, *re.findall(r"`([^`\n]+)`", prose_of(page))]


def test_every_line_of_the_log_is_explained() -> None:
    """An operator finds each in the table, and none there that is never written."""
    sources = [path for folder in ("kernel", "plugins") for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text() for path in sources if "embedded" not in path.parts]
    written = {name for text in texts for name in re.findall(r'\blog\.\w+\(\s*"([a-z_]+\.[a-z_]+)"', text)}
    section = (ROOT / "docs" / "operators.md").read_text().partition("### Logs")[2].partition("\n#")[0]

    assert {*re.findall(r"`([a-z_]+\.[a-z_]+)`", section)} == written


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_a_path_that_is_named_exists(page: Path) -> None:
    """From the root of the project where it stands in backquotes, from the page where it is a link."""
    named = {path for path in re.findall(r"`([\w./*-]+/[\w./*-]*)`", prose_of(page)) if path.split("/")[0] in FOLDERS}
    linked = {*re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", re.sub(r"`[^`\n]*`", "", prose_of(page)))}
    missing = {path for path in named if not [*ROOT.glob(path.rstrip("/"))]}
    missing |= {path for path in linked if not (page.parent / path).exists()}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_a_target_that_is_named_exists(page: Path) -> None:
    """`make` knows it."""
    named = {found[1] for line in commands_of(page) if (found := re.match(r"make ([a-z-]+)", line))}
    assert named <= TARGETS


def test_every_target_says_what_it_does() -> None:
    """In the list that `make` alone shows, and it is declared as no file."""
    makefile = (ROOT / "Makefile").read_text()
    described = {*re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE)}
    phony = {*" ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)).split()}
    assert described == TARGETS == phony
    assert {"help", "run", "test", "lint", "fmt", "types", "snapshots", "live", "bench", "demo"} <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_a_command_that_is_named_exists(page: Path) -> None:
    """And so do its options."""
    for line in commands_of(page):
        if found := re.match(r"(?:\.venv/bin/)?kernel ([a-z]+)\b([^|&]*)", line):
            assert found[1] in cli.commands, line
            options = {option for parameter in cli.commands[found[1]].params for option in parameter.opts}
            assert {*re.findall(r"--[a-z-]+", found[2])} <= {*options, "--help"}, line


def test_the_plugin_in_fifteen_lines_is_the_one_that_is_tested() -> None:
    """Byte by byte, in the README."""
    shown = [block for block in blocks_of(ROOT / "README.md", "python") if "class TenantGate" in block]
    assert shown == [PLUGIN.read_text()]
    for page in PAGES:
        for block in blocks_of(page, "python"):
            assert "class TenantGate" not in block or block == PLUGIN.read_text(), identify(page)


def test_the_test_of_the_plugin_passes_as_it_is_shown(tmp_path: Path) -> None:
    """In a folder with nothing but the plugin beside it, and with no plugin of pytest that a newcomer has to know."""
    (shown,) = [block for block in blocks_of(ROOT / "README.md", "python") if "def test_" in block]
    (tmp_path / "tenant_gate.py").write_text(PLUGIN.read_text())
    (tmp_path / "test_tenant_gate.py").write_text(shown)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_python_that_is_shown_can_be_compiled(page: Path) -> None:
    """Whole files, parts of one, and signatures."""
    for block in blocks_of(page, "python"):
        signature = re.fullmatch(r"(?:async )?def [^\n]*[^:\n]\n", block)
        text = f"{block.rstrip()}: ..." if signature else block
        compile(text, identify(page), "exec", flags=ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_yaml_that_is_shown_is_a_configuration(page: Path) -> None:
    """Its keys are the kernel's own; what plugins make of theirs is for their tests."""
    for number, block in enumerate(blocks_of(page, "yaml")):
        parse_document(block, f"{identify(page)}#{number}").switches()


def test_every_key_of_a_pool_is_told() -> None:
    """Those of engines, policies and discoveries to operators, the others in the commented reference too."""
    groups = ("kernel.engines", "kernel.policies", "kernel.discovery")
    classes = [point.load() for group in groups for point in entry_points(group=group)]
    own = [one for one in classes if one.__module__.startswith("plugins.")]
    page, reference = (ROOT / "docs" / "operators.md").read_text(), (ROOT / "deploy" / "kernel.yaml").read_text()
    keys = {key.alias for one in own for key in attrs.fields(one) if key.init}
    assert {key for key in keys if f"`{key}`" not in page and f"{key}:" not in page} == set()
    settings = (
        ModelConfig,
        RoleConfig,
        WorkerConfig,
        HandoffConfig,
        HealthConfig,
        RetryConfig,
        BreakerConfig,
        TlsConfig,
    )
    keys = {key.alias for one in settings for key in attrs.fields(one) if key.init}
    assert {key for key in keys if f"{key}:" not in reference} == set()


def test_the_commented_reference_is_a_configuration() -> None:
    """Checked by the command line, as its readers will."""
    file = ROOT / "deploy" / "kernel.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "plugins.host", "check", "--insecure", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
