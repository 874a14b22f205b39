"""The kernel's public names: what is offered is what is importable, documented and typed."""

import inspect
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import kernel
from plugins import slots

PUBLIC = [getattr(kernel, name) for name in kernel.__all__]
DOCUMENTED = [value for value in PUBLIC if inspect.isclass(value) or inspect.isfunction(value)]


def methods_of(kind: type) -> list[Any]:
    """The public methods and properties that a class of ours defines itself."""
    return [
        value
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
    ]


def test_all_is_what_is_importable() -> None:
    """No public name is left out, none is promised that is not there, modules are not names."""
    public = {
        name for name, value in vars(kernel).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == {*kernel.__all__}


def test_all_is_sorted_and_has_no_name_twice() -> None:
    """Constants first, then classes, then functions, each by name, as the linter sorts them."""

    def key(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert [*kernel.__all__] == sorted({*kernel.__all__}, key=key)


def test_stars_get_the_same() -> None:
    """`from kernel import *` is the public surface."""
    names: dict[str, object] = {}
    exec("from kernel import *", names)
    names.pop("__builtins__")
    assert {*names} == {*kernel.__all__}


@pytest.mark.parametrize("value", DOCUMENTED, ids=lambda value: value.__name__)
def test_a_public_name_is_documented(value: Any) -> None:
    """Classes, their methods, and functions."""
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        for method in methods_of(value):
            assert inspect.getdoc(method), method


@pytest.mark.parametrize("value", DOCUMENTED, ids=lambda value: value.__name__)
def test_a_public_name_is_typed(value: Any) -> None:
    """Every parameter and every return value, and the types can be resolved."""
    functions = [value] if inspect.isfunction(value) else [m for m in methods_of(value) if inspect.isfunction(m)]
    for function in functions:
        hints = get_type_hints(function)
        assert "return" in hints, function
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.name == "self" or parameter.name in hints, (function, parameter)


def test_the_package_is_marked_as_typed() -> None:
    """Type checkers of third parties read it."""
    from tests.meta.sources import ROOT

    for package in ("kernel", "plugins"):
        assert (ROOT / package / "py.typed").is_file()


def test_the_slots_that_plugins_share_are_named_like_their_constants() -> None:
    """So that an error about one leads to it, and no two have one name."""
    found = {name: value for name, value in vars(slots).items() if isinstance(value, kernel.Slot)}
    assert found
    for name, slot in found.items():
        assert name == slot.name.upper()
