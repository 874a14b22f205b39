"""The list of models, in the shape that its reader knows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs

from attrs import frozen

from kernel import Exchange
from plugins.dispatch.rejections import unknown_model

_ANTHROPIC: Final = "anthropic-version"
_OWNERS: Final[Mapping[str, str]] = {"trtllm": "tensorrt_llm"}
"""What TensorRT-LLM's own frontend says of its models; all others are the kernel's."""

_PAGE: Final = 1000
"""As many models as Anthropic's API lists at once."""


@frozen
class Card:
    """A name under which a model is served; `created` is a time in seconds since 1970."""

    id: str
    engine: str
    created: int

    def show(self, *, anthropic: bool) -> dict[str, Any]:
        """The card in OpenAI's shape, which is TensorRT-LLM's as well, or in Anthropic's."""
        if anthropic:
            created = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return {"type": "model", "id": self.id, "display_name": self.id, "created_at": created}
        owner = _OWNERS.get(self.engine, "kernel")
        return {"id": self.id, "object": "model", "created": self.created, "owned_by": owner}


def list_models(exchange: Exchange, cards: Sequence[Card]) -> dict[str, Any]:
    """All models; a client that names a version of Anthropic's API gets its shape, and the page that it asks for."""
    if _ANTHROPIC not in exchange.headers:
        return {"object": "list", "data": [card.show(anthropic=False) for card in cards]}
    page, more = _page(exchange, [card.id for card in cards])
    shown = [card.show(anthropic=True) for card in cards[page]]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"data": shown, "has_more": more, **ends}


def show_model(exchange: Exchange, cards: Sequence[Card], name: str) -> dict[str, Any]:
    """One model.

    Raises:
        Rejection: 404, there is none of that name.
    """
    card = next((card for card in cards if card.id == name), None)
    if card is None:
        raise unknown_model(name)
    return card.show(anthropic=_ANTHROPIC in exchange.headers)


def _page(exchange: Exchange, ids: list[str]) -> tuple[slice, bool]:
    """The part of the list that was asked for, and whether more follows in the direction of reading.

    What makes no sense is not looked at: whoever reads the whole list at once asks for no page.
    """
    query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
    asked = {name: values[-1] for name, values in query.items()}
    limit = asked.get("limit", "")
    size = min(max(int(limit), 1), _PAGE) if limit.isascii() and limit.isdigit() and len(limit) < 10 else _PAGE
    if asked.get("before_id") in ids:
        end = ids.index(asked["before_id"])
        start = max(end - size, 0)
        return slice(start, end), start > 0
    start = ids.index(asked["after_id"]) + 1 if asked.get("after_id") in ids else 0
    return slice(start, start + size), start + size < len(ids)
