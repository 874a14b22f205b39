"""The printed chain of every configuration in this folder, whole, or the exact error.

A `.chain` file is YAML, a line of dashes, and what comes of it. Beside the kernel's own keys the YAML may have
`test`, which says what is installed: third parties with their anchors and slots, standard plugins that are
missing or anchored, names that the standard order repeats.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from kernel import (
    CallNext,
    ConfigError,
    Exchange,
    OrderLine,
    Place,
    PluginSpec,
    Reply,
    Slot,
    Switch,
    find_extensions,
    resolve,
)
from kernel.discovery import load_spec
from plugins import slots
from plugins.configuration import Document
from plugins.order import STANDARD_ORDER

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.chain"))
RULE = "-" * 20


@frozen
class ThirdParty:
    """A plugin of somebody else."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


def split(text: str) -> tuple[str, str]:
    """The YAML of a file, and what comes of it."""
    given, _, expected = text.partition(f"{RULE}\n")
    return given, expected


def print_chain(places: tuple[Place, ...]) -> str:
    """One line for each place: number, name, switch, who threw it, reason."""
    lines = [
        f"{number:02} {place.name:<21} {'on' if place.on else 'off':<3} by {place.by:<7}  {place.reason}"
        for number, place in enumerate(places, 1)
    ]
    return "\n".join(lines) + "\n"


def outcome_of(given: str, name: str) -> str:
    """The chain of a configuration, or its error."""
    document = Document.parse(given, name)
    installed = document.data.pop("test", {})
    try:
        switches = document.switches()
        order = (*STANDARD_ORDER, *(OrderLine(name, "repeated") for name in installed.get("repeated", ())))
        return print_chain(resolve(order, specs_of(installed, switches), switches))
    except ConfigError as error:
        return "\n".join(error.problems) + "\n"


def specs_of(installed: dict[str, Any], switches: Mapping[str, Switch]) -> dict[str, PluginSpec]:
    """What the runtime would have loaded: the standard plugins that are not off, third parties that are named."""
    extensions = find_extensions("kernel.plugins")
    specs = {
        line.name: load_spec(extensions[line.name])
        for line in STANDARD_ORDER
        if line.name not in installed.get("missing", ())
    }
    for name, anchor in installed.get("anchored", {}).items():
        specs[name] = evolve(specs[name], **anchor)
    named: dict[str, Slot[Any]] = {slot.name: slot for slot in vars(slots).values() if isinstance(slot, Slot)}
    for name, values in installed.get("third_parties", {}).items():
        if name in switches:
            needs, fills = (
                tuple(named.setdefault(slot, Slot(slot)) for slot in values.pop(key, ())) for key in ("needs", "fills")
            )
            specs[name] = PluginSpec(name, ThirdParty, needs=needs, fills=fills, **values)
    off = {name for name, switch in switches.items() if switch.enabled is False}
    return {name: spec for name, spec in specs.items() if name not in off}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_configuration_gives_the_chain_of_its_file(path: Path) -> None:
    """Every place with its reason, or every problem of the order."""
    given, expected = split(path.read_text())
    assert outcome_of(given, path.name) == expected


def test_every_kind_of_order_error_has_a_file() -> None:
    """A new kind of error needs a new file."""
    found = "".join(split(path.read_text())[1] for path in FILES)
    for kind in (
        "the standard order names",
        "names two anchors",
        "names no anchor",
        "which is not a standard plugin",
        "which does not exist\n",
        "which does not exist, did you mean",
        "is a standard one and cannot be moved",
        "is required and cannot be switched off",
        "of the standard order is not installed",
        "it takes no anchor",
        "which nothing outside it fills\n",
        "fills it further in",
    ):
        assert kind in found, kind
    assert len(FILES) >= 15


def test_the_standard_chain_is_that_of_the_list() -> None:
    """Nobody sorts it."""
    names = [line.split()[1] for line in outcome_of("", "kernel.yaml").splitlines()]
    assert names == [line.name for line in STANDARD_ORDER]
