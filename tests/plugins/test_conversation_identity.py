"""The promise of `conversation_identity`: which of the places that may name a conversation is believed."""

from collections.abc import Sequence
from typing import Any

import pytest

from kernel import Endpoint, Rejection
from kernel.testing import build_exchange, run_chain
from plugins.conversation_identity import HEADERS, ConversationIdentity
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, MODELS, RESPONSES
from plugins.slots import CONVERSATION, PAYLOAD, Conversation
from tests.plugins.support import chat, parsed

pytestmark = pytest.mark.anyio

Pairs = Sequence[tuple[str, str]]
PARENT = ConversationIdentity(subagent_header="X-Parent")


async def identify(
    data: dict[str, Any],
    headers: Pairs = (),
    plugin: ConversationIdentity | None = None,
    endpoint: Endpoint = CHAT_COMPLETIONS,
) -> Conversation | None:
    """The conversation that is found."""
    exchange = parsed(chat(**data), endpoint=endpoint, headers=headers)
    await run_chain([plugin or ConversationIdentity()], exchange)
    return exchange.get(CONVERSATION)


@pytest.mark.parametrize(
    ("data", "headers", "expected"),
    [
        ({}, [], None),
        ({"conversation_params": None}, [], None),
        ({"conversation_params": {"conversation_id": " c "}}, [(HEADERS[0], "h")], ("c", "conversation_params")),
        ({"conversation_params": {"conversation_id": 7}}, [], ("7", "conversation_params")),
        ({"prompt_cache_key": "p"}, [(HEADERS[5], "h")], ("h", HEADERS[5])),
        ({"prompt_cache_key": " p "}, [], ("p", "prompt_cache_key")),
        ({"prompt_cache_key": " ", "client_metadata": {"thread_id": "t"}}, [], ("t", "client_metadata.thread_id")),
        (
            {"prompt_cache_key": 5, "client_metadata": {"thread_id": ["t"], "session_id": "s"}},
            [],
            ("s", "client_metadata.session_id"),
        ),
        (
            {"client_metadata": {"session_id": "s", "thread_id": "t"}},
            [],
            ("t", "client_metadata.thread_id"),
        ),
        ({"client_metadata": "t"}, [], None),
        ({"client_metadata": None, "prompt_cache_key": None}, [], None),
        ({"metadata": {"user_id": '{"device_id":"d","session_id":" s "}'}}, [], ("s", "metadata.user_id")),
        ({"metadata": {"user_id": "user_0a_account_1b_session_2-c"}}, [], ("2-c", "metadata.user_id")),
        (
            {"metadata": {"user_id": '{"session_id":"s"}'}, "prompt_cache_key": "p"},
            [],
            ("p", "prompt_cache_key"),
        ),
        ({"metadata": {"user_id": '{"session_id":"s"}'}}, [(HEADERS[0], "h")], ("h", HEADERS[0])),
        *(
            ({"metadata": {"user_id": user}}, [], None)
            for user in ("someone", "{", "{}", '{"session_id":7}', '{"session_id":" "}', "", None, 7, "a_session_b")
        ),
        ({"metadata": "x"}, [], None),
        ({"session_id": "s", "user": "u", "metadata": {"thread_id": "t"}}, [], None),
    ],
)
async def test_precedence_of_places(data: dict[str, Any], headers: Pairs, expected: tuple[str, str] | None) -> None:
    """The body's parameters, then headers, then body fields; what is blank or no text is passed over.

    In every API alike.
    """
    for endpoint in (CHAT_COMPLETIONS, COMPLETIONS, RESPONSES, MESSAGES):
        found = await identify(data, headers, endpoint=endpoint)

        assert found == (None if expected is None else Conversation(*expected))


@pytest.mark.parametrize("rank", range(len(HEADERS)))
async def test_precedence_of_headers(rank: int) -> None:
    """Of several headers the first in the order of TensorRT-LLM counts, in whatever order they were sent."""
    headers = [(name, f"of {name}") for name in HEADERS[rank:]]

    for sent in (headers, headers[::-1]):
        assert await identify({}, sent) == Conversation(f"of {HEADERS[rank]}", HEADERS[rank])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("X-Session-ID", " s ")], "s"),
        ([("x-session-id", ""), ("x-correlation-id", "c")], "c"),
        ([("x-session-id", " \t "), ("x-correlation-id", "c")], "c"),
        ([("x-session-id", "\xa0"), ("x-correlation-id", "c")], "c"),
        ([("x-session-id", ""), ("x-session-id", "second")], "second"),
        ([("x-session-id", "first"), ("x-session-id", "second")], "first"),
        ([("x-session-id", "caf\xe9")], "caf\xe9"),
        ([("x-session-id", "\xa0")], None),
        ([("x-session", "s"), ("session-id", "s")], None),
    ],
)
async def test_spelling_of_headers(headers: Pairs, expected: str | None) -> None:
    """Names in any case, blank values passed over (a no-break space is blank), the first of repeated ones taken."""
    found = await identify({}, headers)

    assert (found.id if found else None) == expected


async def test_limit_of_an_identity() -> None:
    """An identity has at most 1,024 characters, wherever it comes from; the rejection does not repeat it."""
    assert await identify({}, [("x-session-id", "x" * 1024)]) is not None

    for data, headers in (({}, [("x-session-id", "x" * 1025)]), ({"prompt_cache_key": "x" * 1025}, [])):
        with pytest.raises(Rejection, match="longer than 1024") as refused:
            await identify(data, headers)
        assert refused.value.status == 400
        assert "xx" not in refused.value.message


@pytest.mark.parametrize("affinity", ["parent", None, {"a": 1}])
async def test_clients_own_affinity_is_removed(affinity: object) -> None:
    """A client cannot choose the worker of another conversation: its `subagent_affinity_id` goes no further."""
    exchange = parsed(chat(conversation_params={"conversation_id": "c", "subagent_affinity_id": affinity}))

    await run_chain([ConversationIdentity()], exchange)

    payload = exchange[PAYLOAD]
    assert exchange[CONVERSATION] == Conversation("c", "conversation_params")
    assert payload.data["conversation_params"] == {"conversation_id": "c"}
    assert b"subagent" not in payload.encode()


async def test_ordinary_bytes_stay_untouched() -> None:
    """Looking edits nothing."""
    exchange = parsed(chat(conversation_params={"conversation_id": "c"}))

    await run_chain([ConversationIdentity()], exchange)

    assert not exchange[PAYLOAD].edited


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("x-parent", " p ")], "p"),
        ([("x-parent", ""), ("x-parent", "p")], "p"),
        ([("x-parent", " ")], None),
        ([], None),
    ],
)
async def test_parent_of_a_subagent(headers: Pairs, expected: str | None) -> None:
    """The configured header, in any case, names the parent beside the request's own conversation."""
    found = await identify({}, [*headers, ("x-session-id", "own")], PARENT)

    assert found == Conversation("own", "x-session-id", expected)


async def test_subagent_without_a_conversation_gets_one() -> None:
    """A request that has a parent alone gets a conversation of its own, a new one each time."""
    first, second = [await identify({}, [("x-parent", "p")], PARENT) for _ in range(2)]

    assert first is not None
    assert second is not None
    assert first.id.startswith("subagent:")
    assert first.id != second.id
    assert (first.source, first.subagent_affinity) == ("subagent", "p")


async def test_limit_of_a_parent() -> None:
    """Two long parents with the same beginning are not taken for one: too long is refused."""
    with pytest.raises(Rejection) as refused:
        await identify({}, [("x-parent", "p" * 1025)], PARENT)

    assert refused.value.param == "x-parent"


@pytest.mark.parametrize("name", ["", "x parent", "x-parent:", "x-p\xe4rent"])
def test_header_must_be_one(name: str) -> None:
    """A configured name that no header can have is refused when the plugin is built."""
    with pytest.raises(ValueError, match="name of a header"):
        ConversationIdentity(subagent_header=name)


async def test_endpoints() -> None:
    """Every endpoint that generates has conversations, the others have none."""
    completion = parsed({"model": "m", "prompt": "x"}, endpoint=COMPLETIONS, headers=[("x-session-id", "s")])
    models = build_exchange(MODELS, headers=[("x-session-id", "s")])

    for exchange in (completion, models):
        await run_chain([ConversationIdentity()], exchange)

    assert CONVERSATION in completion
    assert CONVERSATION not in models
