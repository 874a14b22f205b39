"""What real clients send is accepted, in full size, with the conversation that they mean."""

import pytest

from kernel import Endpoint
from kernel.testing import build_exchange, run_chain
from plugins.conversation_identity import ConversationIdentity
from plugins.endpoints import ENDPOINTS, GENERATIVE, ONE_MODEL
from plugins.host.routes import READABLE
from plugins.parse_request import ParseRequest
from plugins.slots import CONVERSATION, MODEL, PAYLOAD, STREAM
from plugins.template_guard import TemplateGuard
from tests.plugins.clients import REQUESTS, Sent
from tests.plugins.support import counting

pytestmark = pytest.mark.anyio

PATHS = {(endpoint.method, endpoint.path): endpoint for endpoint in ENDPOINTS}
POSTED = [sent for sent in REQUESTS if sent.method == "POST"]


def endpoint_of(sent: Sent) -> Endpoint:
    """The endpoint that a recorded request asked."""
    return PATHS[sent.method, sent.path]


def test_every_address_is_there() -> None:
    """What a client asked for is an endpoint, a model below one, or answered beside the chain."""
    for sent in REQUESTS:
        below = sent.method == "GET" and sent.path.startswith(ONE_MODEL.path)
        readable = sent.method in ("GET", "HEAD") and sent.path in READABLE
        assert (sent.method, sent.path) in PATHS or below or readable, sent


def test_bodies_have_their_size_again() -> None:
    """Claude Code's have 48 KB and Codex's 40 KB, as they were seen."""
    large = {sent.client.split()[0]: len(sent.body) for sent in POSTED if sent.size > 40_000}
    assert large["Claude"] > 45_000
    assert large["Codex"] > 38_000
    assert large["openai"] > 95_000


@pytest.mark.parametrize("sent", POSTED, ids=lambda sent: f"{sent.client} {sent.target} {sent.size}")
async def test_every_body_is_accepted(sent: Sent) -> None:
    """Nothing is refused or edited, and nothing counts as invalid."""
    exchange = build_exchange(endpoint_of(sent), body=sent.body, headers=sent.headers)

    with counting() as changes:
        await run_chain([ParseRequest(), TemplateGuard(), ConversationIdentity()], exchange)

    assert sent.data is not None
    assert exchange[PAYLOAD].encode() == sent.body
    assert exchange[MODEL] == sent.data["model"]
    assert exchange[STREAM] is (sent.data.get("stream") is True)
    assert changes == {}


@pytest.mark.parametrize(
    ("client", "source"),
    [("Claude Code", "x-claude-code-session-id"), ("Codex", "prompt_cache_key"), ("aiperf", "x-correlation-id")],
)
async def test_agents_say_which_conversation_it_is(client: str, source: str) -> None:
    """Every turn of an agent has its session, wherever the agent puts it."""
    turns = [sent for sent in POSTED if sent.client.startswith(client) and endpoint_of(sent) in GENERATIVE]
    assert turns
    for sent in turns:
        exchange = build_exchange(endpoint_of(sent), body=sent.body, headers=sent.headers)
        await run_chain([ParseRequest(), ConversationIdentity()], exchange)
        assert exchange[CONVERSATION].source == source
