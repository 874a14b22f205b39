"""Finds plugins, engines and policies by entry point; one bad package is one error, and none is imported unasked."""

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

import attrs
from attrs import frozen

from kernel.errors import DiscoveryError
from kernel.plugin import PluginSpec


@frozen
class Extension:
    """An installed entry point, not imported yet."""

    name: str
    distribution: str
    version: str
    entry: EntryPoint

    def load(self) -> object:
        """Import what it names; raises `DiscoveryError`, whatever the import raised."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise self.unusable(f"{type(error).__name__}: {error}") from error

    def unusable(self, cause: str) -> DiscoveryError:
        """The error that names distribution, entry point and cause."""
        where = f"{self.entry.group}: {self.name} = {self.entry.value}"
        return DiscoveryError(f"{self.distribution} {self.version}, entry point [{where}]: {cause}")


def find_extensions(group: str) -> dict[str, Extension]:
    """The entry points of `group` by name; raises `DiscoveryError` where two distributions offer one name."""
    found, problems, known = dict[str, Extension](), list[str](), dict[object, tuple[str, str]]()
    for entry in entry_points(group=group):
        told = known.get(dist := entry.dist)  # to read a distribution is slow, and most entries are of the same
        name, version = known[dist] = told or ((dist.name, dist.version) if dist else ("?", "?"))
        other = found.setdefault(entry.name, Extension(entry.name, name, version, entry))
        if (other.distribution, other.entry.value) != (name, entry.value):
            problems.append(f"{group}: {entry.name!r} is offered by {other.distribution} and by {name}")
    if problems:
        raise DiscoveryError(problems)
    return found


def find_extension(group: str, name: str) -> Extension:
    """The entry point `name` of `group`; raises `DiscoveryError` with the nearest name where there is none."""
    found = find_extensions(group)
    if name not in found:
        raise DiscoveryError(f"nothing installed offers {group} {name!r:.80}{suggest(name, found)}")
    return found[name]


def suggest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?`, or what there is."""
    near = get_close_matches(name, known := sorted(known), 1)
    return f", did you mean {near[0]!r}?" if near else f"; there is {', '.join(known) or 'none'}"


def load_spec(extension: Extension) -> PluginSpec:
    """The spec behind a `kernel.plugins` entry point; raises `DiscoveryError` where that is no plugin's."""
    spec = extension.load()
    if not isinstance(spec, PluginSpec):
        raise extension.unusable(f"expected a PluginSpec, got {type(spec).__name__}")
    if spec.name != extension.name:
        raise extension.unusable(f"the spec is named {spec.name!r}, not {extension.name!r}")
    plugin: object = spec.plugin
    if not isinstance(plugin, type) or not attrs.has(plugin):
        raise extension.unusable("the plugin is not an attrs class")
    if not inspect.iscoroutinefunction(plugin.__call__):
        raise extension.unusable(f"{plugin.__name__}.__call__ is not an async function")
    return spec
