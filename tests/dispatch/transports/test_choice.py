"""Which transport is taken, and how YAML says so."""

from typing import Any

import pytest

from plugins.configuration import Document
from plugins.dispatch.client import ConnectFault
from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.pool import Pool
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.transports.choice import ChosenClient, Transport
from plugins.dispatch.transports.lean import LeanClient
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, pools, running, single
from tests.dispatch.transports.exchange import call, fetch

pytestmark = pytest.mark.anyio


def kinds(client: object) -> list[type]:
    """The transports that a client has made."""
    assert isinstance(client, ChosenClient)
    return [type(one) for one in client._clients.values()]


@pytest.mark.parametrize(
    ("transport", "scheme", "kind"),
    [
        (None, "http", LeanClient),
        (None, "https", AiohttpClient),
        ("lean", "http", LeanClient),
        ("aiohttp", "http", AiohttpClient),
        ("aiohttp", "https", AiohttpClient),
    ],
)
async def test_the_address_decides_unless_something_else_was_said(
    transport: Transport | None, scheme: str, kind: type
) -> None:
    """Only the transport that is needed is made."""
    client = ChosenClient(transport, 3.0)
    assert kinds(client) == []
    for _ in range(2):
        assert type((await fetch(client, call(f"{scheme}://127.0.0.1:1"))).fault) is ConnectFault
    assert kinds(client) == [kind]
    await client.close()


async def test_one_pool_may_have_workers_with_and_without_tls() -> None:
    """Each is reached in its own way."""
    client = ChosenClient(None, 3.0)
    for scheme in ("http", "https"):
        assert type((await fetch(client, call(f"{scheme}://127.0.0.1:1"))).fault) is ConnectFault
    assert kinds(client) == [LeanClient, AiohttpClient]
    await client.close()


async def test_a_worker_with_tls_that_is_found_later_is_not_reached_over_lean() -> None:
    """Its probe says why."""
    client = ChosenClient("lean", 3.0)
    fault = (await fetch(client, call("https://127.0.0.1:1"))).fault
    assert type(fault) is ConnectFault
    assert "'lean' speaks no TLS" in fault.detail
    await client.close()


@pytest.mark.parametrize(("fields", "kind"), [({}, LeanClient), ({"transport": "aiohttp"}, AiohttpClient)])
async def test_a_pool_sends_and_probes_over_its_transport(fields: dict[str, Any], kind: type) -> None:
    """Lean, unless its configuration names the other one."""
    async with scripted(answer_ok) as worker, running(single(worker.url, **fields)) as dispatch:
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        (pool,) = pools(dispatch)
        assert isinstance(pool, Pool)
        assert kinds(pool.client) == [kind]


def test_lean_cannot_be_had_for_workers_with_tls() -> None:
    """Not even for one of several."""
    with pytest.raises(ValueError, match="'lean' speaks no TLS"):
        ModelConfig("m", workers=("http://127.0.0.1:1", "https://127.0.0.1:2"), transport="lean")
    with pytest.raises(ValueError, match="'lean' speaks no TLS"):
        ModelConfig(
            "m",
            engine=TrtllmEngine(),
            context=RoleConfig(("http://127.0.0.1:1",)),
            generation=RoleConfig(("HTTPS://127.0.0.1:2",)),
            transport="lean",
        )


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ("{model: m, workers: ['http://a:1'], transport: aiohttp}", ""),
        ("{model: m, workers: ['http://a:1'], transport: h2}", "[0].transport: "),
        ("{model: m, workers: ['https://a:1'], transport: lean}", "[0]: the transport 'lean' speaks no TLS"),
    ],
)
def test_yaml_names_the_transport_of_a_pool(pool: str, problem: str) -> None:
    """Another one, or one that does not reach the workers, is refused with its place."""
    problems: list[str] = []
    text = "plugins: {dispatch: {config: {pools: [" + pool + "]}}}"
    dispatch = Document.parse(text, "kernel.yaml").plugin("dispatch", Dispatch, problems)
    if problem:
        assert [f"plugins.dispatch.config.pools{problem}" in line for line in problems] == [True]
    else:
        assert dispatch == Dispatch((ModelConfig("m", workers=("http://a:1",), transport="aiohttp"),))
        assert dispatch != Dispatch((ModelConfig("m", workers=("http://a:1",)),))
