"""The control endpoints, and what a worker tells of itself."""

import asyncio
from base64 import b64decode
from typing import Any

import aiohttp
import orjson
import ormsgpack
import pytest

from plugins.dispatch.embedded.stub import Stub
from tests.stub.support import CHAT, PATHS, context_body, post

pytestmark = pytest.mark.anyio


async def ask(client: aiohttp.ClientSession, stub: Stub, method: str, path: str, body: object = None) -> Any:
    """Ask a control endpoint and give the decoded answer."""
    async with client.request(method, stub.url + path, json=body) as response:
        return response.status, orjson.loads(await response.read())


async def test_state_shows_what_came_in(client: aiohttp.ClientSession, context: Stub) -> None:
    """The last requests are shown as they came: path, headers in order and twice, body, raw body, format."""
    raw = ormsgpack.packb(context_body(CHAT))
    headers = [("Content-Type", "application/json"), ("X-TRTLLM-Msgpack", "1"), ("X-Twice", "a"), ("X-Twice", "b")]
    async with client.post(context.url + PATHS["chat"] + "?q=1", data=raw, headers=headers) as response:
        assert response.status == 200
    _status, state = await ask(client, context, "GET", "/_stub/state")
    counts = ("requests", "running", "finished", "aborted", "faulted", "held_blocks", "leaked_blocks")
    assert [state[name] for name in counts] == [1, 0, 1, 0, 0, 1, 0]
    assert state["handoffs"] == {"held": 1, "fetched": 0, "expired": 0, "dropped": 0, "released": 0}
    (request,) = state["last_requests"]
    assert (request["method"], request["path"]) == ("POST", PATHS["chat"] + "?q=1")
    assert (request["wire"], request["outcome"], request["status"]) == ("msgpack", "finished", 200)
    assert [pair for pair in request["headers"] if pair[0] == "X-Twice"] == [["X-Twice", "a"], ["X-Twice", "b"]]
    assert request["body"] == context_body(CHAT)
    assert b64decode(request["body_base64"]) == raw
    assert context.state().last_requests[0].header("x-TWICE") == "a"


async def test_whoever_controls_is_not_counted(
    client: aiohttp.ClientSession, kept: aiohttp.ClientSession, plain: Stub
) -> None:
    """A connection to the control endpoints is no client's, and its requests are no work."""
    _status, state = await ask(client, plain, "GET", "/_stub/state")
    assert (state["connections_open"], state["requests"], state["probes"]) == (0, 0, {})
    await post(kept, plain, PATHS["chat"], CHAT)
    _status, state = await ask(client, plain, "GET", "/_stub/state")
    assert (state["connections_open"], state["requests"]) == (1, 1)
    await kept.close()
    await plain.until(lambda state: state.connections_open == 0)


async def test_faults_are_set_and_cleared(client: aiohttp.ClientSession, plain: Stub) -> None:
    """One rule or a list is added, the rules that are left are shown, and DELETE drops them."""
    assert await ask(client, plain, "GET", "/_stub/faults") == (200, [])
    rules = [{"kind": "status", "status": 503}, {"kind": "slow", "seconds": 0.001, "times": -1}]
    _status, shown = await ask(client, plain, "POST", "/_stub/faults", rules)
    assert [rule["kind"] for rule in shown] == ["status", "slow"]
    await ask(client, plain, "POST", "/_stub/faults", {"kind": "garbage"})
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 503
    _status, shown = await ask(client, plain, "GET", "/_stub/faults")
    assert [(rule["kind"], rule["times"]) for rule in shown] == [("slow", -1), ("garbage", 1)]
    assert await ask(client, plain, "DELETE", "/_stub/faults") == (200, {})
    assert plain.faults == ()


@pytest.mark.parametrize("body", [[{"kind": "hang"}, {"kind": "explode"}], {"kind": 1}, [1], "hang"])
async def test_wrong_faults_are_refused_whole(client: aiohttp.ClientSession, plain: Stub, body: object) -> None:
    """If one rule of a list is wrong, none is taken."""
    status, answer = await ask(client, plain, "POST", "/_stub/faults", body)
    assert (status, "fault: " in answer["message"]) == (400, True)
    assert plain.faults == ()


async def test_a_refusal_can_be_cleared_by_whoever_asked_for_it(
    kept: aiohttp.ClientSession, client: aiohttp.ClientSession, plain: Stub
) -> None:
    """The control connection survives the closing of the door, and can open it again."""
    await ask(kept, plain, "POST", "/_stub/faults", {"kind": "refuse"})
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)
    assert (await ask(kept, plain, "DELETE", "/_stub/faults"))[0] == 200
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200


async def test_reset_forgets_all_but_what_runs(client: aiohttp.ClientSession, context: Stub) -> None:
    """Counts, records, faults and held blocks go; a request that runs is still counted."""
    await post(client, context, PATHS["chat"], context_body(CHAT, 1))
    context.add_fault("slow", seconds=60)
    running = asyncio.ensure_future(post(client, context, PATHS["chat"], context_body(CHAT, 2)))
    await context.until(lambda state: state.running == 1 and not context.faults)
    context.add_fault("hang")
    assert await ask(client, context, "POST", "/_stub/reset") == (200, {})
    state = context.state()
    assert (state.requests, state.running, state.finished, state.held_blocks) == (1, 1, 0, 0)
    assert (state.last_requests, context.faults) == ((), ())
    running.cancel()
    assert (await context.until(lambda state: state.running == 0)).aborted == 1


async def test_only_the_last_hundred_requests_are_kept(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Older records make room for newer ones, while the counts go on."""
    for number in range(105):
        await post(client, plain, PATHS["chat"], {"number": number})
    state = plain.state()
    assert (state.requests, len(state.last_requests)) == (105, 100)
    assert state.last_requests[0].body == {"number": 5}


async def test_a_body_that_cannot_be_decoded_is_shown_raw(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A broken body has no decoded form and its raw bytes."""
    async with client.post(plain.url + PATHS["chat"], data=b"\xff{") as response:
        assert response.status == 400
    _status, state = await ask(client, plain, "GET", "/_stub/state")
    assert state["last_requests"][0]["body"] is None
    assert b64decode(state["last_requests"][0]["body_base64"]) == b"\xff{"


async def test_a_body_that_json_cannot_show_is_shown_raw(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Content nested deeper than can be written back is answered, and does not break the state."""
    deep = b'{"model": "stub", "messages": [{"role": "user", "content": ' + b"[" * 300 + b"]" * 300 + b"}]}"
    headers = {"Content-Type": "application/json"}
    async with client.post(plain.url + PATHS["chat"], data=deep, headers=headers) as response:
        assert response.status == 200
    _status, state = await ask(client, plain, "GET", "/_stub/state")
    assert state["last_requests"][0]["body"] is None
    assert b64decode(state["last_requests"][0]["body_base64"]) == deep


async def test_other_control_paths_are_refused(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A control path that is none is 404."""
    for method, path in (("GET", "/_stub/none"), ("POST", "/_stub/state"), ("POST", "/_stub/kv/fetch")):
        assert (await ask(client, plain, method, path))[0] == 404
