"""Which APIs an engine's workers answer by themselves."""

from collections.abc import Collection
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from attrs import Attribute

ApiName: TypeAlias = Literal[
    "completions", "chat_completions", "responses", "messages", "count_tokens",
    "embeddings", "rerank", "score", "tokenize", "detokenize",
]  # fmt: skip
"""The name of an endpoint."""

Apis: TypeAlias = tuple[ApiName, ...]

USUAL: Final[Apis] = ("completions", "chat_completions")
"""What workers answer of whose engine nothing else is known."""


@runtime_checkable
class Speaks(Protocol):
    """An engine that says which APIs its workers answer; of others they are the usual ones."""

    @property
    def apis(self) -> Collection[str]:
        """Names of endpoints; a request over any other one has to be translated, or is declined."""
        ...


def apis_of(engine: object) -> frozenset[str]:
    """The names of the endpoints that an engine's workers answer."""
    return frozenset(engine.apis if isinstance(engine, Speaks) else USUAL)


def check_apis(_instance: object, _attribute: "Attribute[Any]", value: Apis) -> None:
    """An attrs validator: one API or more, each once."""
    if not value:
        raise ValueError("apis: there must be at least one")
    twice = next((name for name in value if value.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"apis: {twice} stands twice")
