"""Entry points that lead to nothing usable: each is one error that names package and cause."""

import sys
from typing import Any

import pytest
from attrs import frozen

from kernel import (
    CallNext,
    DiscoveryError,
    Exchange,
    Extension,
    PluginSpec,
    Reply,
    find_extension,
    find_extensions,
)
from kernel.discovery import load_spec
from tests.kernel.support import Shelf

GROUP = "kernel.plugins"


@frozen
class Fine:
    """A plugin."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


@frozen
class Synchronous:
    """Not a plugin: its call is no coroutine."""

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        raise NotImplementedError


class Plain:
    """Not a plugin: no attrs class."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


@frozen
class Uncallable:
    """Not a plugin: it cannot be called."""


def find(shelf: Shelf, value: str, name: str = "gate") -> Extension:
    """Offer an entry point and find it."""
    shelf.install("some-gate", {name: value})
    return find_extensions(GROUP)[name]


def cause_of(extension: Extension) -> str:
    """Why it does not load."""
    with pytest.raises(DiscoveryError) as caught:
        load_spec(extension)
    (problem,) = caught.value.problems
    start = f"some-gate 1.0, entry point [kernel.plugins: gate = {extension.entry.value}]: "
    assert problem.startswith(start)
    return problem.removeprefix(start)


def offer(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, value: object) -> Extension:
    """Offer any object as the plugin `gate`."""
    from types import ModuleType

    module = ModuleType("some_gate")
    module.PLUGIN = value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_gate", module)
    return find(shelf, "some_gate:PLUGIN")


def test_a_spec_is_loaded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is the object itself."""
    spec = PluginSpec("gate", Fine, after="outer")
    assert load_spec(offer(shelf, monkeypatch, spec)) is spec


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (None, "expected a PluginSpec, got NoneType"),
        (Fine, "expected a PluginSpec, got type"),
        ({"name": "gate"}, "expected a PluginSpec, got dict"),
        (PluginSpec("other", Fine), "the spec is named 'other', not 'gate'"),
        (PluginSpec("gate", Plain), "the plugin is not an attrs class"),
        (PluginSpec("gate", Fine()), "the plugin is not an attrs class"),  # type: ignore[arg-type]
        (PluginSpec("gate", Synchronous), "Synchronous.__call__ is not an async function"),  # type: ignore[arg-type]
        (PluginSpec("gate", Uncallable), "Uncallable.__call__ is not an async function"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_plugin_is_one_error(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, value: Any, cause: str) -> None:
    """That names distribution, version, entry point and cause."""
    assert cause_of(offer(shelf, monkeypatch, value)) == cause


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("tests.kernel.no_such_module:PLUGIN", "ModuleNotFoundError: "),
        ("tests.kernel.parts:NOTHING", "AttributeError: "),
        ("tests.kernel.parts:LEFT.nothing", "AttributeError: "),
        ("tests.kernel.parts", "expected a PluginSpec, got module"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_one_error(shelf: Shelf, value: str, cause: str) -> None:
    """Whatever the import raised."""
    assert cause_of(find(shelf, value)).startswith(cause)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError: "),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("raise SystemExit('needs a license')", "SystemExit: needs a license"),
        ("from kernel import PluginSpec\nPLUGIN = PluginSpec('No Name', None)", "ValueError: a plugin's name is"),
    ],
)
def test_a_module_that_raises_is_one_error(shelf: Shelf, code: str, cause: str) -> None:
    """Also one that wants to end the process."""
    (shelf.folder / "broken_gate.py").write_text(code)
    try:
        assert cause_of(find(shelf, "broken_gate:PLUGIN")).startswith(cause)
    finally:
        sys.modules.pop("broken_gate", None)


@pytest.mark.parametrize("value", ["", "a b", "1:2:3", ":x"])
def test_an_entry_point_that_is_no_reference_is_one_error(shelf: Shelf, value: str) -> None:
    """A hand-written package may hold anything."""
    shelf.install("some-gate", {"gate": value})
    with pytest.raises(DiscoveryError):
        load_spec(find_extension(GROUP, "gate"))
