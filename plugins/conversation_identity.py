"""Finds out which conversation a request belongs to."""

import re
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import orjson
from attrs import field, frozen

from kernel import Exchange, PluginSpec, Rejection
from plugins.endpoints import GENERATIVE
from plugins.hooks import Hooks
from plugins.slots import CONVERSATION, PAYLOAD, Conversation

HEADERS: Final = (
    "x-claude-code-session-id",
    "x-claude-session-id",
    "x-session-id",
    "x-correlation-id",
    "x-session-affinity",
    "x-multi-turn-session-id",
)
"""In order of precedence, as in TensorRT-LLM's frontend."""

ID_LIMIT: Final = 1024
_SESSION: Final = re.compile(r"^user_.+_session_([0-9A-Za-z-]+)$")
_RANK: Final = {name.encode(): rank for rank, name in enumerate(HEADERS)}
_FIELDS: Final = frozenset(("conversation_params", "prompt_cache_key", "client_metadata", "metadata"))


def _header_name(_instance: object, _attribute: object, value: str | None) -> None:
    if value is not None and not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", value):
        raise ValueError(f"expected the name of a header, got {value!r}")


@frozen
class ConversationIdentity(Hooks):
    """Fill the slot `conversation`: from the body's `conversation_params`, else from headers, else body fields.

    The fields are `prompt_cache_key`, `client_metadata` and the session in Claude Code's `metadata.user_id`.

    `subagent_header` names the header in which an agent gives the conversation of its parent; without a
    conversation of its own the request then gets a new one. A client's own `subagent_affinity_id` is removed.
    """

    subagent_header: str | None = field(default=None, validator=_header_name)

    def on_request(self, exchange: Exchange) -> None:
        """Look.

        Raises:
            Rejection: 400, an identity is longer than 1,024 characters.
        """
        if exchange.endpoint in GENERATIVE:
            found = _find(exchange)
            parent = None
            if self.subagent_header is not None:
                parent = _parent(exchange, self.subagent_header.lower())
                if parent is not None:
                    found = found or (f"subagent:{uuid4()}", "subagent")
            if found is not None:
                exchange[CONVERSATION] = Conversation(*_limited(*found), subagent_affinity=parent)


def _find(exchange: Exchange) -> tuple[str, str] | None:
    payload = exchange[PAYLOAD]
    headers = None if exchange.sent.keys().isdisjoint(_RANK) else _from_headers(exchange)
    if _FIELDS.isdisjoint(payload.data):
        return headers
    params = payload.data.get("conversation_params")
    if params is not None:
        if "subagent_affinity_id" in params:
            del payload.edit()["conversation_params"]["subagent_affinity_id"]
        return str(params["conversation_id"]).strip(), "conversation_params"
    return headers or _from_body(payload.data) or _from_user(payload.data)


def _parent(exchange: Exchange, wanted: str) -> str | None:
    for name, value in exchange.scope["headers"]:
        if name == wanted.encode() and (text := value.decode("latin-1").strip()):
            return _limited(text, wanted)[0]
    return None


def _limited(identity: str, source: str) -> tuple[str, str]:
    if len(identity) > ID_LIMIT:
        raise Rejection(400, f"the conversation id is longer than {ID_LIMIT} characters", param=source)
    return identity, source


def _from_headers(exchange: Exchange) -> tuple[str, str] | None:
    best, found = len(HEADERS), None
    for name, value in exchange.scope["headers"]:
        rank = _RANK.get(name, best)
        if rank < best and (text := value.decode("latin-1").strip()):
            best, found = rank, text
    return (found, HEADERS[best]) if found is not None else None


def _from_body(data: dict[str, Any]) -> tuple[str, str] | None:
    metadata = data.get("client_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for source, value in (
        ("prompt_cache_key", data.get("prompt_cache_key")),
        ("client_metadata.thread_id", metadata.get("thread_id")),
        ("client_metadata.session_id", metadata.get("session_id")),
    ):
        if isinstance(value, str) and value.strip():
            return value.strip(), source
    return None


def _from_user(data: dict[str, Any]) -> tuple[str, str] | None:
    """The session in Claude Code's `metadata.user_id`: a member of JSON text, or in older versions what is last.

    Of any other user's id nothing follows: one user has many conversations.
    """
    metadata = data.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    session: Any = None
    if user.startswith("{"):
        with suppress(orjson.JSONDecodeError):
            session = orjson.loads(user).get("session_id")
    elif match := _SESSION.search(user):
        session = match[1]
    return (session.strip(), "metadata.user_id") if isinstance(session, str) and session.strip() else None


PLUGIN = PluginSpec("conversation_identity", ConversationIdentity, needs=(PAYLOAD,), fills=(CONVERSATION,))
