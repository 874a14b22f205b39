"""Makes frozen attrs classes of plain data: strict, nothing coerced, every problem at once with its line."""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import evolve, frozen
from cattrs import Converter

from kernel import Extends, KernelError, Secret
from plugins.configuration.references import read_secret

T = TypeVar("T")


Location: TypeAlias = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""


class Located(Protocol):
    """Knows where a value stands."""

    def at(self, location: Location, message: str) -> str:
        """Say where and what."""
        ...


@frozen
class _Given:
    """What a hook of cattrs gets instead of a bare value, so that it can say where a problem is."""

    value: Any
    location: Location
    problems: list[tuple[Location, str]]

    def inside(self, step: str | int) -> Self:
        return evolve(self, value=self.value[step], location=(*self.location, step))

    def build(self, kind: Any, item: Any = None) -> Any:
        """Make a `kind`, for the field `item` if there is one; the result counts only if no problem was added."""
        before = len(self.problems)
        try:
            built = _converter.structure(self, object if item and item.converter else kind)
            if item and len(self.problems) == before:
                with suppress(AttributeError):  # it asks the instance, and will again when there is one
                    rest = (None, item) if isinstance(item.converter, attrs.Converter) else ()
                    final = item.converter(built, *rest) if item.converter else built
                    if item.validator:
                        item.validator(None, item, final)
        except (Exception, SystemExit) as error:  # whatever a plugin's class raises is a problem of its configuration
            own = any(isinstance(argument, attrs.Attribute) for argument in error.args)  # of attrs' validators
            reason = " ".join(str(error.args[0] if own else error).split()).rstrip(".")
            prefix = "" if own or isinstance(error, ValueError | KernelError) else f"{type(error).__name__}: "
            self.problems.append((self.location, prefix + reason))
            return None
        return built


def _build_plain(given: _Given, kind: Any) -> object:
    options = get_args(kind) if get_origin(kind) is Literal else list(kind) if issubclass(kind, Enum) else []
    plains = [option.value if isinstance(option, Enum) else option for option in options]
    value = given.value
    for option, plain in zip(options, plains, strict=True):
        if type(plain) is type(value) and plain == value:
            return option
    is_number = kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max
    if is_number or (kind is Path and isinstance(value, str)):
        return kind(value)
    if type(value) is kind is not float:
        return value
    expected = f"one of {plains}" if plains else _type_text(kind)
    raise ValueError(f"expected {expected}, got {value!r:.60}")


def _build_union(given: _Given, kind: Any) -> object:
    arms = [arm for arm in get_args(kind) if arm is not NoneType or given.value is None]
    kinds = (int, float) if type(given.value) is int else (type(given.value),)
    is_mapping = isinstance(given.value, dict)
    fitting = (arm for arm in arms if (get_origin(arm) or arm) in kinds or (is_mapping and attrs.has(arm)))
    return _converter.structure(given, next(fitting, arms[0]))


def _build_items(given: _Given, kind: Any) -> Any:
    origin, arms = get_origin(kind) or kind, get_args(kind) or (Any, Any)
    is_list = origin in (list, tuple, frozenset)
    if is_list and isinstance(given.value, list):
        return origin(given.inside(index).build(arms[0]) for index in range(len(given.value)))
    if not is_list and isinstance(given.value, dict | None):
        return {key: given.inside(key).build(arms[1]) for key in given.value or ()}
    raise ValueError(f"expected a {'list' if is_list else 'mapping'}, got {type(given.value).__name__}")


def _build_class(given: _Given, kind: Any) -> object:
    values = _build_items(given, dict)
    keys, before, built = _keys(kind), len(given.problems), dict[str, object]()
    missing = [key for key, item in keys.items() if item.default is attrs.NOTHING and key not in values]
    given.problems.extend((given.location, f"missing required key {key!r}") for key in missing)
    for key in values:
        if key in keys:
            built[key] = given.inside(key).build(keys[key].type, keys[key])
        else:
            near = get_close_matches(key[:60], keys, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys are {', '.join(keys) or 'none'}"
            given.problems.append(((*given.location, key), f"unknown key {key!r:.60}, {hint}"))
    return kind(**built) if len(given.problems) == before else None


def _build_extension(given: _Given, kind: Any) -> object:
    load = next(mark.load for mark in kind.__metadata__ if isinstance(mark, Extends))
    values = {"type": given.value} if isinstance(given.value, str) else _build_items(given, dict)
    name = values.pop("type", None)
    if not isinstance(name, str):
        raise ValueError("expected NAME or {type: NAME, ...}")  # noqa: TRY004  # as for every wrong value
    return _build_class(evolve(given, value=values), load(name))


def _keys(kind: type) -> dict[str, Any]:
    """The fields that are keys; the types of run-time state may have a meaning only for type checkers."""
    with suppress(NameError):
        attrs.resolve_types(kind)
    fields = [item for item in attrs.fields(kind) if item.init]
    names = {"__module__": kind.__module__, "__annotations__": {item.name: item.type for item in fields}}
    types = get_type_hints(type(kind.__name__, (), names), include_extras=True)
    return {item.alias: item.evolve(type=types[item.name]) for item in fields}


_HOOKS: tuple[tuple[Callable[[Any], bool], Callable[[_Given, Any], object]], ...] = (  # the last that fits wins
    (lambda kind: not hasattr(kind, "__metadata__") and isinstance(get_origin(kind) or kind, type), _build_plain),
    (lambda kind: get_origin(kind) is Literal, _build_plain),
    (lambda kind: get_origin(kind) in (Union, UnionType), _build_union),
    (lambda kind: (get_origin(kind) or kind) in (list, frozenset, dict, Mapping), _build_items),
    (lambda kind: kind is tuple or (get_origin(kind) is tuple and get_args(kind)[1:] == (...,)), _build_items),
    (attrs.has, _build_class),
    (lambda kind: any(isinstance(mark, Extends) for mark in kind.__metadata__), _build_extension),
    (lambda kind: kind is Secret, lambda given, _: read_secret(given.value)),
    (lambda kind: kind in (Any, object, None, NoneType), lambda given, _: given.value),
)
_converter = Converter()
for _kind in (str, bytes, int, float, Path):
    _converter.register_structure_hook(_kind, _build_plain)
for _predicate, _hook in _HOOKS:
    _converter.register_structure_hook_func(_predicate, _hook)


def structure(document: Located, path: Location, value: object, kind: type[T], problems: list[str]) -> T | None:
    """Make a `kind` of the value at `path`; all that is wrong with it is added to `problems`, in file order."""
    given = _Given(value, path, [])
    built: T | None = given.build(kind)
    problems.extend(document.at(*problem) for problem in given.problems)
    return None if given.problems else built


def _type_text(kind: Any) -> str:
    return re.sub(r"<\w+ '|'>|Annotated\[|, Extends\(\)\]|(?:[A-Za-z_<][\w<>]*\.)+(?=[A-Za-z_])", "", repr(kind))


def describe(kind: type) -> list[tuple[str, str, str | None]]:
    """Name, type and default of each key of a configuration class; a required key has no default."""
    found = []
    for key, item in _keys(kind).items():
        factory = getattr(item.default, "factory", None)
        default = factory() if factory and not item.default.takes_self else item.default
        found.append((key, _type_text(item.type), None if default is attrs.NOTHING else f"{default!r:.60}"))
    return found
