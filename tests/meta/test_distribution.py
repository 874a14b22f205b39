"""What a standard plugin has to have besides its file."""

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernel import PluginSpec, find_extension
from kernel.discovery import load_spec
from plugins.order import STANDARD_ORDER
from tests.meta.sources import ROOT

NAMES = [line.name for line in STANDARD_ORDER]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRIES: dict[str, dict[str, str]] = PROJECT["entry-points"]


def spec_of(name: str) -> PluginSpec:
    """The spec behind an entry point of the project itself."""
    return load_spec(find_extension("kernel.plugins", name))


@pytest.mark.parametrize("name", NAMES)
def test_a_standard_plugin_has_an_entry_point(name: str) -> None:
    """To a module of its own name, or to a folder of that name."""
    module = ENTRIES["kernel.plugins"][name].partition(":")[0]
    assert module in (f"plugins.{name}", f"plugins.{name}.plugin")
    assert ROOT.joinpath(*module.split(".")).with_suffix(".py").is_file()


def test_every_entry_point_has_a_line_in_the_order() -> None:
    """Nothing is offered that never runs."""
    assert {*ENTRIES["kernel.plugins"]} == {*NAMES}


@pytest.mark.parametrize("group", sorted(ENTRIES))
def test_what_is_installed_is_what_the_project_says(group: str) -> None:
    """After a change of entry points the project has to be installed again, which `make` does."""
    installed = {
        entry.name: entry.value
        for entry in entry_points(group=group)
        if entry.dist is not None and entry.dist.name == PROJECT["name"]
    }
    assert installed == ENTRIES[group]


@pytest.mark.parametrize(
    ("group", "name", "value"), [(group, *item) for group in sorted(ENTRIES) for item in sorted(ENTRIES[group].items())]
)
def test_an_entry_point_leads_somewhere(group: str, name: str, value: str) -> None:
    """Each can be imported."""
    extension = find_extension(group, name)
    assert extension.entry.value == value
    assert extension.load() is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_standard_plugin_is_a_frozen_class_with_a_docstring(name: str) -> None:
    """Its fields are its configuration, and its equality says whether that changed."""
    spec = spec_of(name)
    assert spec.name == name
    assert spec.plugin.__doc__
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.plugin.__setattr__(object.__new__(spec.plugin), "anything", 1)
    assert spec.plugin.__eq__ is not object.__eq__


@pytest.mark.parametrize("name", NAMES)
def test_a_standard_plugin_has_tests(name: str) -> None:
    """A file of its own, or a folder."""
    file = ROOT / "tests" / "plugins" / f"test_{name}.py"
    folder = ROOT / "tests" / name
    assert file.is_file() or [*folder.glob("test_*.py")]


@pytest.mark.parametrize("name", NAMES)
def test_a_standard_plugin_is_mentioned_in_the_documentation(name: str) -> None:
    """Where users look for it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    assert any(f"`{name}`" in page.read_text() for page in pages)


@pytest.mark.parametrize("line", STANDARD_ORDER, ids=lambda line: line.name)
def test_every_place_has_a_reason(line: Any) -> None:
    """A sentence that names a neighbour, or says that there is none."""
    assert len(line.reason.split()) > 5
    assert any(re.search(rf"\b{name}\b", line.reason) for name in NAMES) or re.search(
        r"outermost|innermost|before anything|inside all", line.reason
    )


def test_the_libraries_of_the_project_are_pinned_for_a_fresh_install() -> None:
    """Every dependency has a lower bound and a line in the constraints."""
    pinned = {line.partition("==")[0].lower() for line in Path(ROOT / "constraints.txt").read_text().splitlines()}
    for requirement in PROJECT["dependencies"]:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert ">=" in requirement
        assert name[0].lower() in pinned, requirement
