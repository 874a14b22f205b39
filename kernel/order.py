"""Resolves the standard order and third-party anchors into one order, or one OrderError."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from attrs import frozen

from kernel.config import Switch
from kernel.errors import OrderError
from kernel.plugin import OrderLine, PluginSpec

DEFAULT = Switch()


@frozen
class Place:
    """One position of the order: why it is there, whether it runs, who decided that; what is off has no spec."""

    name: str
    reason: str
    on: bool
    by: str
    spec: PluginSpec | None


def resolve(
    order: Sequence[OrderLine], specs: Mapping[str, PluginSpec], switches: Mapping[str, Switch]
) -> tuple[Place, ...]:
    """Every plugin's place, outermost first; standard ones that are off keep theirs.

    `specs` holds what is on. Third parties at one anchor and side stand in order of name. Raises `OrderError`.
    """
    standard = [line.name for line in order]
    problems = [f"the standard order names {name!r} twice" for name in sorted({*standard}) if standard.count(name) > 1]
    anchored, places = dict[tuple[str, str], list[Place]](), list[Place]()
    for name in sorted(specs.keys() - standard):
        try:
            side, anchor = _anchor(specs[name], switches.get(name, DEFAULT), standard, specs)
            place = Place(name, f"{side} {anchor}", on=True, by="file", spec=specs[name])
            anchored.setdefault((side, anchor), []).append(place)
        except OrderError as error:
            problems += error.problems
    for line in order:
        spec, switch = specs.get(line.name), switches.get(line.name, DEFAULT)
        problems += _standard_problems(line, spec, switch)
        by = "default" if switch.enabled is None else "file"
        place = Place(line.name, line.reason, spec is not None, by, spec)
        places += [*anchored.get(("before", line.name), ()), place, *anchored.get(("after", line.name), ())]
    if problems := problems or _unmet_needs([place.spec for place in places if place.spec is not None]):
        raise OrderError(problems)
    return tuple(places)


def _anchor(
    spec: PluginSpec, switch: Switch, standard: Sequence[str], specs: Mapping[str, PluginSpec]
) -> tuple[str, str]:
    """Where a third party stands: `before` or `after`, and the standard plugin's name."""
    chosen = spec if switch.before is None and switch.after is None else switch
    match chosen.before, chosen.after:
        case (str(anchor), None) | (None, str(anchor)):
            side = "before" if chosen.before is not None else "after"
        case None, None:
            raise OrderError(
                f"plugin {spec.name!r} names no anchor: give before or after, with a standard plugin's name"
            )
        case before, after:
            raise OrderError(f"plugin {spec.name!r} names two anchors, before {before!r} and after {after!r}: give one")
    if anchor not in standard:
        near = [] if anchor in specs else get_close_matches(anchor, standard, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        what = "is not a standard plugin" if anchor in specs else "does not exist"
        raise OrderError(f"plugin {spec.name!r} is anchored to {anchor!r}, which {what}{hint}")
    return side, anchor


def _standard_problems(line: OrderLine, spec: PluginSpec | None, switch: Switch) -> list[str]:
    off = switch.enabled is False
    anchored = spec is not None and (spec.before is not None or spec.after is not None)
    problems = {
        "is a standard one and cannot be moved": switch.before is not None or switch.after is not None,
        "is required and cannot be switched off": off and line.required,
        "of the standard order is not installed": spec is None and not off,
        "is a standard one: it takes no anchor": anchored,
    }
    return [f"plugin {line.name!r} {problem}" for problem, found in problems.items() if found]


def _unmet_needs(specs: Sequence[PluginSpec]) -> list[str]:
    """A need is met by a plugin that is on and further out."""
    problems, filled = list[str](), set[object]()
    fillers = {slot: spec.name for spec in specs for slot in spec.fills}
    for spec in specs:
        for slot in spec.needs:
            if slot not in filled:
                further_in = f"; {fillers[slot]!r} fills it further in" if slot in fillers else ""
                problems.append(f"{spec.name} needs {slot.name!r}, which nothing outside it fills{further_in}")
        filled.update(spec.fills)
    return problems
