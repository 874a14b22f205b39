"""What may import what: the kernel little, plugins the kernel's public names, nobody another plugin."""

import ast
import re
import subprocess
import sys

import pytest

import kernel
from plugins.order import STANDARD_ORDER
from tests.meta.sources import ROOT, Source, sources

KERNEL_LIBRARIES = {"attrs", "anyio", "starlette", "structlog"}
ARROWS = (
    "errors", "reply", "race", "wire", "exchange", "plugin", "config", "order", "chain", "discovery", "assembly",
    "runtime", "asgi", "app", "testing",
)  # fmt: skip
"""Each module of the kernel imports only from those before it."""

SHARED = {
    "slots", "metrics", "tallies", "endpoints", "sse", "envelopes", "schemas", "configuration",
    "messages", "chat", "responses", "board", "hooks",
}  # fmt: skip
"""What plugins have in common; `configuration` is for those with files of their own. Third parties rely on `slots`."""

OWNERS = {
    "uvicorn": ("plugins/host/",),
    "click": ("plugins/host/",),
    "rich": ("plugins/host/",),
    "httptools": ("plugins/host/", "plugins/dispatch/transports/lean/"),
    "yaml": ("plugins/configuration/",),
    "cattrs": ("plugins/configuration/",),
    "aiohttp": ("plugins/dispatch/transports/", "plugins/dispatch/health.py", "plugins/dispatch/embedded/"),
    "opentelemetry": ("plugins/trace_span.py",),
    "xllamacpp": ("plugins/dispatch/embedded/",),
    "starlette": ("kernel/", "plugins/host/routes.py"),
}
"""Where a library may be imported, and nowhere else."""

HEAVY = {
    "aiohttp", "orjson", "prometheus_client", "uvicorn", "click", "opentelemetry", "yaml", "cattrs", "httptools",
    "plugins",
}  # fmt: skip
"""Not loaded with the kernel. Rich would belong here as well, but structlog loads it where it is installed."""


def top(name: str) -> str:
    """The package that a module is in."""
    return name.partition(".")[0]


@pytest.mark.parametrize("source", sources("kernel"), ids=lambda source: source.name)
def test_the_kernel_imports_little(source: Source) -> None:
    """The standard library, four libraries and itself; never the plugins."""
    foreign = {top(name) for name in source.imports} - {*sys.stdlib_module_names, *KERNEL_LIBRARIES, "kernel"}
    assert foreign == set()


@pytest.mark.parametrize("source", sources("kernel"), ids=lambda source: source.name)
def test_arrows_inside_the_kernel_go_one_way(source: Source) -> None:
    """A module knows only what comes before it; the package itself gathers the public names."""
    inner = {name.removeprefix("kernel.") for name in source.imports if top(name) == "kernel"}
    if source.module == "kernel":
        assert inner <= {*ARROWS}
    else:
        place = ARROWS.index(source.module.removeprefix("kernel."))
        assert inner <= {*ARROWS[:place]}


def test_the_arrows_are_those_that_agents_are_told() -> None:
    """And every module of the kernel is among them."""
    told = re.search(r"imports go one way: ([^.]+)\.", (ROOT / "AGENTS.md").read_text())
    assert told is not None
    assert tuple(told[1].replace("\n", " ").split(", ")) == ARROWS
    assert {f"kernel.{name}" for name in ARROWS} | {"kernel"} == {source.module for source in sources("kernel")}


@pytest.mark.parametrize("source", sources("plugins"), ids=lambda source: source.name)
def test_plugins_know_the_kernels_public_names_alone(source: Source) -> None:
    """They import the package, never one of its modules, and from it only what it offers."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and top(node.module) == "kernel":
            assert node.module == "kernel"
            assert {alias.name for alias in node.names} <= {*kernel.__all__}
        if isinstance(node, ast.Import):
            assert not any(top(alias.name) == "kernel" for alias in node.names)


def standard_plugins() -> list[Source]:
    """The files of the standard plugins, the whole folder where it is one."""
    names = {line.name for line in STANDARD_ORDER}
    return [source for source in sources("plugins") if source.module.split(".")[1:2] and own(source) in names]


def own(source: Source) -> str:
    """The part of `plugins` that a file belongs to."""
    return source.module.split(".")[1]


@pytest.mark.parametrize("source", standard_plugins(), ids=lambda source: source.name)
def test_a_plugin_never_imports_another_one(source: Source) -> None:
    """Only its own folder and what all plugins share."""
    parts = {name.split(".")[1] for name in source.imports if name.startswith("plugins.")}
    assert "plugins" not in source.imports
    assert parts <= SHARED | {own(source)}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_plugins_share_knows_no_plugin(name: str) -> None:
    """Nor the host."""
    found = [source for source in sources("plugins") if source.module.split(".")[1:2] == [name]]
    assert found
    for source in found:
        parts = {name.split(".")[1] for name in source.imports if name.startswith("plugins.")}
        assert parts <= SHARED


def test_nothing_imports_the_host() -> None:
    """The command line stands on the plugins, not the other way round."""
    for source in sources("plugins"):
        if not source.name.startswith("plugins/host/"):
            assert not any(name.startswith("plugins.host") for name in source.imports), source.name


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_a_library_stays_where_it_belongs(library: str) -> None:
    """So that it can be replaced there."""
    for source in (*sources("kernel"), *sources("plugins")):
        if library in {top(name) for name in source.imports}:
            assert source.name.startswith(OWNERS[library]), source.name


def imported_by(statement: str) -> set[str]:
    """The modules that a new process has imported after a statement."""
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


def test_the_kernel_is_light() -> None:
    """To import it loads no HTTP client, no server, no metrics, no command line and no plugin."""
    assert imported_by("import kernel, kernel.testing") & HEAVY == set()


def test_the_plugins_are_light() -> None:
    """The exporter of spans, the demo's model, the server and the command line are loaded where they are used."""
    modules = "plugins, plugins.order, plugins.slots, plugins.trace_span, plugins.dispatch.plugin"
    heavy = {"opentelemetry.sdk", "opentelemetry.exporter", "xllamacpp", "uvicorn", "click"}
    assert imported_by(f"import {modules}") & heavy == set()
