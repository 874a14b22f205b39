"""Stopping SGLang's requests by their id."""

import asyncio

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.pairs import BODIES, PATHS, frames, paired, send

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]


async def abort(client: aiohttp.ClientSession, stub: Stub, body: object, key: str | None = None) -> int:
    """Ask a worker to stop, and give the status."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return (await send(client, stub, "/abort_request", body, **headers))[0]


def named(api: str, rid: str) -> tuple[dict[str, object], dict[str, str]]:
    """Fields and headers by which a request of an API has an id; those of the messages API have no field for it."""
    if api == "messages":
        return {"rid": "ignored"}, {"x-override-rid": rid}
    return {"request_id" if api == "responses" else "rid": rid}, {}


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_running_request_is_stopped(
    client: aiohttp.ClientSession, sglang: Stub, api: str, stream: bool
) -> None:
    """It ends at once, with the text so far, and in completions and chat with the reason `abort`."""
    sglang.add_fault("slow", seconds=60)
    fields, headers = named(api, "resp_1")
    asked = asyncio.ensure_future(
        send(client, sglang, PATHS[api], {**BODIES[api], **fields, "stream": stream}, **headers)
    )
    await sglang.until(lambda state: state.running == 1 and not sglang.faults)
    assert await abort(client, sglang, {"rid": "ignored"}) == 200
    assert sglang.state().aborts == 0
    assert await abort(client, sglang, {"rid": "resp_1"}) == 200
    status, raw = await asked
    assert status == 200
    if api in ("completions", "chat"):
        answer = frames(raw)[-2][1] if stream else orjson.loads(raw)
        assert answer["choices"][0]["finish_reason"] == "abort"
    if api == "responses" and not stream:
        assert orjson.loads(raw)["id"] == "resp_1"
    state = sglang.state()
    assert (state.running, state.finished, state.aborts, state.requests) == (0, 1, 1, 1)


@pytest.mark.parametrize("half", ["prefill", "decode"])
async def test_a_waiting_half_is_stopped(client: aiohttp.ClientSession, sglang_pair: Pair, half: str) -> None:
    """A half that waits for the other one ends at once too, and holds nothing."""
    prefill, decode = sglang_pair
    stub = prefill if half == "prefill" else decode
    asked = asyncio.ensure_future(send(client, stub, PATHS["chat"], paired(prefill, "chat", rid="k-1")))
    await stub.until(lambda state: state.held_blocks == 3)
    assert await abort(client, stub, {"rid": "k-1", "abort_all": False}) == 200
    status, raw = await asked
    assert (status, orjson.loads(raw)["choices"][0]["finish_reason"]) == (200, "abort")
    assert (stub.state().held_blocks, stub.state().leaked_blocks, stub.state().aborts) == (0, 0, 1)


async def test_one_half_is_not_told_of_the_other(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """Stopping the prefill half leaves the decode half waiting until it is stopped as well."""
    prefill, decode = sglang_pair
    prefill.add_fault("slow", seconds=60)
    body = paired(prefill, "chat", rid="k-1")
    halves = [asyncio.ensure_future(send(client, stub, PATHS["chat"], body)) for stub in sglang_pair]
    await decode.until(lambda state: state.held_blocks == 3)
    await prefill.until(lambda state: state.held_blocks == 3)
    await abort(client, prefill, {"rid": "k-1"})
    await halves[0]
    for _ in range(20):  # as many chances for the decode half to hear of it
        async with client.get(decode.url + "/health"):
            pass
    assert (halves[1].done(), decode.state().running) == (False, 1)
    await abort(client, decode, {"rid": "k-1"})
    _status, raw = await halves[1]
    assert orjson.loads(raw)["choices"][0]["finish_reason"] == "abort"
    assert prefill.state().pairs == 0


@pytest.mark.parametrize("body", [{}, {"rid": ""}, {"rid": "other"}, {"rid": 5}, {"abort_all": "yes"}])
async def test_an_abort_of_nothing_does_nothing(client: aiohttp.ClientSession, sglang: Stub, body: object) -> None:
    """Without the id of a request that runs a 200 means nothing."""
    sglang.add_fault("slow", seconds=60)
    asked = asyncio.ensure_future(send(client, sglang, PATHS["chat"], {**BODIES["chat"], "rid": "k-1"}))
    await sglang.until(lambda state: state.running == 1 and not sglang.faults)
    assert await abort(client, sglang, body) == 200
    assert (sglang.state().running, sglang.state().aborts) == (1, 0)
    asked.cancel()
    await sglang.until(lambda state: state.aborted == 1)


async def test_an_id_stops_what_begins_with_it(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """Requests whose ids begin with the one that is named are stopped, or all of them."""
    sglang.add_fault("slow", seconds=60, times=-1)
    asked = {
        rid: asyncio.ensure_future(send(client, sglang, PATHS["chat"], {**BODIES["chat"], "rid": rid}))
        for rid in ("k-1", "k-12", "k-2")
    }
    await sglang.until(lambda state: state.running == 3)
    await abort(client, sglang, {"rid": "k-1"})
    await asyncio.gather(asked["k-1"], asked["k-12"])
    assert not asked["k-2"].done()
    await abort(client, sglang, {"abort_all": True})
    await asked["k-2"]
    assert sglang.state().aborts == 3


@pytest.mark.parametrize(("key", "status", "aborts"), [(None, 401, 0), ("wrong", 401, 0), ("admin", 200, 1)])
async def test_stopping_may_need_a_key(
    client: aiohttp.ClientSession, key: str | None, status: int, aborts: int
) -> None:
    """A worker with an admin key does not stop anything for those who lack it."""
    async with run_stub("sglang", admin_key="admin") as stub:
        stub.add_fault("slow", seconds=60)
        asked = asyncio.ensure_future(send(client, stub, PATHS["chat"], {**BODIES["chat"], "rid": "k-1"}))
        await stub.until(lambda state: state.running == 1 and not stub.faults)
        assert await abort(client, stub, {"rid": "k-1"}, key) == status
        assert stub.state().aborts == aborts
        asked.cancel()
        await stub.until(lambda state: state.running == 0)


async def test_a_fault_can_hit_an_abort(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """A rule without a path spares aborts, which are no work; one with their path hits them."""
    sglang.add_fault("status", status=503)
    assert await abort(client, sglang, {"rid": "x"}) == 200
    sglang.add_fault("status", status=403, path="/abort_request")
    assert await abort(client, sglang, {"rid": "x"}) == 403
    assert sglang.state().requests == 0
