"""Reads a file that is a list of one kind of item, as strictly as the configuration itself."""

from typing import Any

from kernel import ConfigError
from plugins.configuration.document import Document
from plugins.configuration.references import MAXIMUM_BYTES
from plugins.configuration.structure import structure


def read_list(content: bytes, name: str, kind: Any) -> tuple[Any, ...]:
    """The items of a YAML or JSON list, each made a `kind`; one that is empty, or that says nothing, has none.

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
    if items is None:
        raise ConfigError(problems)
    return items
