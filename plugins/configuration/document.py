"""What the configuration is read from: one YAML file that remembers its lines.

Plain scalars follow the core schema of YAML 1.2: `yes`, `12:30` and dates are strings, `1e3` is a float.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from attrs import evolve, field, frozen

from kernel import ConfigError, Switch
from plugins.configuration.references import MAXIMUM_BYTES, read_text
from plugins.configuration.settings import Settings
from plugins.configuration.structure import Location, structure

T = TypeVar("T")

MAXIMUM_VALUES = 100_000

_PLAIN: tuple[tuple[str, Callable[[str], object]], ...] = (
    (r"~|null|Null|NULL|", lambda _: None),
    (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    (r"[-+]?[0-9]{1,4000}", int),
    (r"0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    (r"(?s:.*)", str),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {None: [("plain", re.compile(""))]}  # noqa: RUF012


@frozen
class Document:
    """A parsed file: plain `data`, and in `lines` the line of every key and list item; `name` is for people.

    The data is a mapping, or a list in files that are one.
    """

    name: str
    text: str = field(repr=False)
    data: Any = field(factory=dict, repr=False)
    lines: dict[Location, int] = field(factory=dict, repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse a file, named as the user gave it; raises `ConfigError`, also when it cannot be read."""
        try:
            text = read_text(path)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str, root: type = dict) -> Self:
        """Parse one YAML document; raises `ConfigError` where it is none, has a key twice, or another `root`."""
        document = cls(name, text)
        try:
            if len(text) > MAXIMUM_BYTES:
                raise ValueError("larger than 1 MiB")
            node = _Loader(text).get_single_node()
            data = document._build(node, (), 1) if node else None
            if data is not None and not isinstance(data, root):
                raise yaml.YAMLError(f"expected a {'mapping' if root is dict else 'list'}, got {data!r:.60}")
        except Exception as error:  # hostile text gets ValueError, OverflowError and more out of PyYAML
            mark, position = getattr(error, "problem_mark", None), getattr(error, "position", 0)
            line = 1 + (mark.line if mark else text.count("\n", 0, position))
            parts = [getattr(error, name, None) for name in ("context", "problem")]
            reason = ", ".join(filter(None, parts)) or str(error).partition("\n")[0]
            if isinstance(error, RecursionError):
                reason = "nested too deeply, or an alias contains itself"
            raise ConfigError(f"{name}:{line}: {reason:.200}") from None
        return evolve(document, data=root() if data is None else data)

    def at(self, location: Location, message: str) -> str:
        """Say where and what, as in `kernel.yaml:7: plugins.dispatch.config.pools[0].engine: message`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
        dotted = repr("".join(steps).removeprefix("."))[1:-1]
        while location and location not in self.lines:
            location = location[:-1]
        return ": ".join(filter(None, (f"{self.name}:{self.lines.get(location, 1)}", dotted, message)))

    def settings(self) -> Settings:
        """Structure the whole file; raises `ConfigError` with everything that is wrong with it."""
        problems: list[str] = []
        settings = structure(self, (), self.data, Settings, problems)
        if settings is None:
            raise ConfigError(problems)
        return settings

    def switches(self) -> Mapping[str, Switch]:
        """What the file says of plugins; raises `ConfigError` with everything that is wrong with the file."""
        return self.settings().plugins

    def plugin(self, name: str, kind: type[T], problems: list[str]) -> T | None:
        """Make the plugin `name` of what stands under `plugins.NAME.config`."""
        path = ("plugins", name, "config")
        value: object = self.data
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return structure(self, path, value, kind, problems)

    def _build(self, node: yaml.Node, location: Location, line: int) -> object:
        self.lines[location] = line
        if len(self.lines) > MAXIMUM_VALUES:
            raise ValueError(f"more than {MAXIMUM_VALUES} values, aliases counted as often as they are used")
        if isinstance(node, yaml.SequenceNode) and node.tag == _Loader.DEFAULT_SEQUENCE_TAG:
            places = ((item, (*location, index)) for index, item in enumerate(node.value))
            return [self._build(item, place, item.start_mark.line + 1) for item, place in places]
        if not isinstance(node, yaml.MappingNode) or node.tag != _Loader.DEFAULT_MAPPING_TAG:
            return _build_scalar(node)
        data: dict[str, object] = {}
        for key, item in node.value:
            name, problem = _build_scalar(key), None
            if not isinstance(name, str):
                problem = f"a key must be a string, got {name!r:.60}"
            elif name in data:
                problem = f"duplicate key {name!r:.60}, first on line {self.lines[*location, name]}"
            else:
                data[name] = self._build(item, (*location, name), key.start_mark.line + 1)
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        return data


def _build_scalar(node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode) and node.tag == "plain":
        return next(convert(node.value) for pattern, convert in _PLAIN if re.fullmatch(pattern, node.value))
    if isinstance(node, yaml.ScalarNode) and node.tag == _Loader.DEFAULT_SCALAR_TAG:
        return str(node.value)
    raise yaml.MarkedYAMLError(problem=f"{node.tag} cannot stand here", problem_mark=node.start_mark)
