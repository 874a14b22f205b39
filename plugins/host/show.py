"""What `kernel plugins` shows: the chain as data, as a table, and one plugin in full."""

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
import click
from attrs import frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernel import Assembly, Extension, OrderLine, Place, PluginSpec, find_extension
from plugins.configuration import Settings, describe
from plugins.host.instance import EMBEDDED, Instance

COLUMNS: Final = ("#", "plugin", "switch", "needs", "fills", "from", "why there")
NARROW: Final = ("#", "plugin", "switch", "why there")

WIDE: Final = 170
"""How many columns a terminal needs for a column of each kind; the last takes them all where there are fewer."""


@frozen
class View:
    """A resolved chain, and what is installed beside it."""

    places: Sequence[Place]
    extensions: Mapping[str, Extension]
    settings: Settings
    required: frozenset[str]

    @classmethod
    def of(cls, assembly: Assembly, settings: Settings, order: Iterable[OrderLine]) -> Self:
        """The view of an assembly that was built with `settings` from a standard `order`."""
        required = frozenset(line.name for line in order if line.required)
        return cls(assembly.places, assembly.extensions, settings, required)

    def chain(self, config: Path | None) -> dict[str, Any]:
        """The chain, outermost first, and the installed plugins that have no place in it."""
        names = {place.name for place in self.places}
        others = [name for name in sorted(self.extensions) if name not in names]
        return {
            "config": str(config) if config is not None else None,
            "plugins": [self._place(position, place) for position, place in enumerate(self.places, 1)],
            "installed": [{"name": name, **self._switch(name), **self._origin(name)} for name in others],
        }

    def plugin(self, name: str) -> dict[str, Any]:
        """Everything about one plugin, which is imported for it.

        Raises:
            ConfigError: there is none of that name, or it cannot be imported.
        """
        extension = find_extension("kernel.plugins", name)
        spec = extension.load()
        if not isinstance(spec, PluginSpec):
            raise extension.unusable(f"expected a PluginSpec, got {type(spec).__name__}")
        found = [self._place(position, place) for position, place in enumerate(self.places, 1) if place.name == name]
        place = found[0] if found else {"position": None, "name": name, **self._switch(name)}
        fields = [
            {"name": key, "type": kind, "default": default, "required": default is None}
            for key, kind, default in describe(spec.plugin)
        ]
        return {
            **place,
            **_slots(spec),
            **self._origin(name),
            "anchor": _anchor(spec),
            "fail_open": spec.fail_open,
            "doc": inspect.getdoc(spec.plugin) or "",
            "fields": fields,
        }

    def _place(self, position: int, place: Place) -> dict[str, Any]:
        return {
            "position": position,
            "name": place.name,
            "on": place.on,
            "by": place.by,
            "reason": place.reason,
            "required": place.name in self.required,
            **_slots(place.spec),
            **self._origin(place.name),
        }

    def _switch(self, name: str) -> dict[str, Any]:
        return {"on": False, "by": "file" if name in self.settings.plugins else "default"}

    def _origin(self, name: str) -> dict[str, Any]:
        extension = self.extensions.get(name)
        if extension is None:
            return {"distribution": None, "version": None}
        return {"distribution": extension.distribution, "version": extension.version}


def _slots(spec: PluginSpec | None) -> dict[str, list[str]]:
    needs, fills = (spec.needs, spec.fills) if spec is not None else ((), ())
    return {"needs": [slot.name for slot in needs], "fills": [slot.name for slot in fills]}


def _anchor(spec: PluginSpec) -> str | None:
    sides = (("before", spec.before), ("after", spec.after))
    return next((f"{side} {anchor}" for side, anchor in sides if anchor is not None), None)


def print_chain(chain: Mapping[str, Any]) -> None:
    """Print the chain as a table: fitted to a terminal, else one line for each plugin, whatever its length."""
    console = Console() if sys.stdout.isatty() else Console(color_system=None, force_terminal=False, width=10_000)
    wide = console.width >= WIDE
    table = Table(*(COLUMNS if wide else NARROW), box=None, pad_edge=False, header_style="bold")
    for column in table.columns[:3]:
        column.no_wrap = True
    for entry in (*chain["plugins"], *chain["installed"]):
        cells = _cells(entry)
        if not wide:
            facts = [cells[6], *(f"{name} {text}" for name, text in zip(COLUMNS[3:6], cells[3:6], strict=True) if text)]
            cells = [*cells[:3], "\n".join(filter(None, facts))]
        table.add_row(*map(Text, cells), style="" if entry["on"] else "dim")
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _cells(entry: Mapping[str, Any]) -> list[str]:
    """What stands in the columns."""
    slots = [", ".join(entry.get(kind, ())) for kind in ("needs", "fills")]
    position = str(entry.get("position", ""))
    return [position, entry["name"], _switch_text(entry), *slots, _origin_text(entry), entry.get("reason", "")]


def _switch_text(entry: Mapping[str, Any]) -> str:
    if entry.get("position") is None and entry["by"] == "default":
        return "installed, off"
    return f"{'on' if entry['on'] else 'off'} ({entry['by']})"


def _origin_text(entry: Mapping[str, Any]) -> str:
    return f"{entry['distribution']} {entry['version']}" if entry["distribution"] else "not installed"


def plugin_text(plugin: Mapping[str, Any]) -> str:
    """One plugin in full."""
    facts = {
        "position": plugin["position"] or f"none; it would stand {plugin['anchor']}",
        "switch": _switch_text(plugin),
        "reason": plugin.get("reason"),
        "needs": ", ".join(plugin["needs"]),
        "fills": ", ".join(plugin["fills"]),
        "from": _origin_text(plugin),
    }
    lines = [plugin["name"], "", *(f"  {line}".rstrip() for line in plugin["doc"].splitlines()), ""]
    lines += [f"{name + ':':10}{value}" for name, value in facts.items() if value]
    lines += ["", "fields:" if plugin["fields"] else "no fields"]
    for item in plugin["fields"]:
        default = "required" if item["required"] else f"default {item['default']}"
        lines.append(f"  {item['name']}: {item['type']}, {default}")
    return "\n".join(lines)


def instances_data(instances: Iterable[Instance]) -> list[dict[str, Any]]:
    """Running instances as plain data."""
    return [{**attrs.asdict(each.state), **_last_reload(each), "refused": list(_refused(each))} for each in instances]


def instance_lines(instances: Iterable[Instance]) -> list[str]:
    """Running instances for people, with what the last reload was refused for."""
    lines = []
    for each in instances:
        state = each.state
        lines.append(f"running: pid {state.pid} on {state.listen} since {state.started}, {state.config or EMBEDDED}")
        lines += [f"  last reload refused: {problem}" for problem in _refused(each)]
    return ["", *lines] if lines else []


def _last_reload(instance: Instance) -> dict[str, Any]:
    """How often its processes have reloaded; they do so together."""
    keys = ("hangups", "reloads", "last_reload")
    return {key: getattr(state, key) for state in instance.processes[:1] for key in keys}


def _refused(instance: Instance) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem for state in instance.processes for problem in state.refused))
