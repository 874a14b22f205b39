"""Reads a file that is a list of one kind of item, as strictly as the configuration itself."""

from collections.abc import Callable
from typing import Any, TypeVar

from kernel import ConfigError
from plugins.configuration.document import Document
from plugins.configuration.references import MAXIMUM_BYTES
from plugins.configuration.structure import structure

T = TypeVar("T")


def read_list(content: bytes, name: str, kind: Any, take: Callable[[Any], T]) -> tuple[T, ...]:
    """What `take` makes of the items of a YAML or JSON list, each of which is a `kind`; an empty file has none.

    `take` raises `ValueError` for an item that is not good.

    Raises:
        ConfigError: all that is wrong with it, each problem with file, line and place.
    """
    if len(content) > MAXIMUM_BYTES:
        raise ConfigError(f"{name}: larger than 1 MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: no UTF-8 at byte {error.start}") from None
    document = Document.parse(text, name, list)
    problems: list[str] = []
    items = structure(document, (), document.data, tuple[kind, ...], problems)
    taken = []
    for index, item in enumerate(items or ()):
        try:
            taken.append(take(item))
        except ValueError as error:
            problems.append(document.at((index,), str(error)))
    if problems:
        raise ConfigError(problems)
    return tuple(taken)
