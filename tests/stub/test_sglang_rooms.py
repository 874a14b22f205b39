"""Where the halves of an SGLang request meet."""

import asyncio

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import BODIES, PATHS, ROOM, clean, paired, send, send_both
from tests.stub.support import Body

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]
PROMPTS = ["one two", "three four", "five"]


async def test_rooms_are_exact(client: aiohttp.ClientSession) -> None:
    """Two rooms that are one as a double are two: the halves do not meet, and both give up."""
    async with (
        run_stub("sglang", role="prefill", pair_seconds=0.05) as prefill,
        run_stub("sglang", role="decode", pair_seconds=0.05) as decode,
    ):
        body, other = paired(prefill, "chat", ROOM), paired(prefill, "chat", ROOM + 1)
        assert float(ROOM) == float(ROOM + 1)
        first, second = await send_both(client, (prefill, decode), PATHS["chat"], body, other)
        assert (first[0], second[0]) == (500, 500)
        assert b"bootstrap timed out" in first[1]
        for stub in (prefill, decode):
            assert (stub.state().handoffs, stub.state().leaked_blocks) == (HandoffCounts(expired=1), 3)


@pytest.mark.parametrize("half", ["prefill", "decode"])
async def test_a_room_is_for_one(client: aiohttp.ClientSession, sglang_pair: Pair, half: str) -> None:
    """A room in use is refused to another request, and free again after the first one."""
    prefill, decode = sglang_pair
    stub = prefill if half == "prefill" else decode
    body = paired(prefill, "chat")
    waiting = asyncio.ensure_future(send(client, stub, PATHS["chat"], body))
    await stub.until(lambda state: state.held_blocks == 3)
    status, raw = await send(client, stub, PATHS["chat"], body)
    assert (status, b"already in use" in raw) == (400, True)
    assert stub.state().violations == {"room_reused": 1}
    await send(client, decode if half == "prefill" else prefill, PATHS["chat"], body)
    assert (await waiting)[0] == 200
    first, second = await send_both(client, sglang_pair, PATHS["chat"], body)
    assert (first[0], second[0]) == (200, 200)


@pytest.mark.parametrize(
    ("api", "change", "room"),
    [
        ("completions", {"prompt": PROMPTS}, ROOM),
        ("completions", {"prompt": PROMPTS}, [ROOM, 5, 7]),
        ("completions", {"prompt": PROMPTS, "n": 2}, ROOM),
        ("chat", {"n": 3}, ROOM),
        ("chat", {"n": 3}, [1, 2, ROOM]),
        ("completions", {"prompt": PROMPTS[:1]}, [ROOM]),
    ],
)
async def test_every_sequence_has_its_room(
    client: aiohttp.ClientSession, sglang: Stub, sglang_pair: Pair, api: str, change: Body, room: object
) -> None:
    """One room stands for as many as there are sequences; a list has one for each."""
    prefill, _decode = sglang_pair
    body = paired(prefill, api, room, **change)
    if isinstance(room, list):
        body["bootstrap_host"] = ["127.0.0.1"] * len(room)
        body["bootstrap_port"] = [prefill.side_port] * len(room)
    _status, expected = await send(client, sglang, PATHS[api], {**BODIES[api], **change})
    first, second = await send_both(client, sglang_pair, PATHS[api], body)
    assert (first[0], second[0]) == (200, 200)
    for answer in (orjson.loads(second[1])["choices"], orjson.loads(expected)["choices"]):
        assert len(answer) == (len(change.get("prompt", ["x"])) * change.get("n", 1))
    texts = [
        [choice.get("text") or choice["message"]["content"] for choice in orjson.loads(raw)["choices"]]
        for raw in (second[1], expected)
    ]
    assert texts[0] == texts[1]
    assert clean(*sglang_pair)


@pytest.mark.parametrize(
    ("change", "room", "violations"),
    [
        ({"prompt": PROMPTS, "n": 2}, [1, 2, 3], {"room_reused": 1}),
        ({"prompt": PROMPTS}, [1, 1, 2], {"room_reused": 1}),
        ({"prompt": PROMPTS}, [1, 2], {}),
        ({"prompt": PROMPTS}, [1, None, 2], {}),
        ({"prompt": PROMPTS}, (1 << 63) - 2, {}),
        ({"prompt": PROMPTS, "bootstrap_host": ["127.0.0.1"] * 2}, 1, {}),
    ],
)
async def test_rooms_that_do_not_fit(
    client: aiohttp.ClientSession, sglang_pair: Pair, change: Body, room: object, violations: dict[str, int]
) -> None:
    """A list that repeats rooms, has too few of them, or runs out of numbers is refused by both halves."""
    prefill, _decode = sglang_pair
    body = {**paired(prefill, "completions", room), **change}
    for stub in sglang_pair:
        status, _raw = await send(client, stub, PATHS["completions"], body)
        assert (status, stub.state().violations, stub.state().held_blocks) == (400, violations, 0)


@pytest.mark.parametrize("variant", ["api port", "own default", "bracketed"])
async def test_the_bootstrap_can_be_elsewhere(client: aiohttp.ClientSession, variant: str) -> None:
    """The bootstrap is on a port of its own or on the API's, and a request may leave the port to the worker."""
    async with run_stub("sglang", role="prefill", side_on_api_port=variant == "api port") as prefill:
        assert (prefill.side_port is None) is (variant == "api port")
        port = prefill.side_port or prefill.port
        async with client.get(prefill.url + "/server_info") as response:
            assert (await response.json())["disaggregation_bootstrap_port"] == port
        async with run_stub("sglang", role="decode", side_port=port) as decode:
            body = paired(prefill, "chat")
            body["bootstrap_port"] = None if variant == "own default" else port
            answers = await send_both(client, (prefill, decode), PATHS["chat"], body)
            assert [status for status, _raw in answers] == [200, 200]


async def test_headers_override_the_body(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """On chat the meeting and the id may be in headers, so that the body stays as it was; a bad one is refused."""
    prefill, decode = sglang_pair
    headers = {
        "x-override-bootstrap-host": "127.0.0.1",
        "x-override-bootstrap-port": str(prefill.side_port),
        "x-override-bootstrap-room": str(ROOM),
        "x-override-rid": "k-9",
    }
    answers = await asyncio.gather(
        *(send(client, stub, PATHS["chat"], BODIES["chat"], **headers) for stub in sglang_pair)
    )
    assert [status for status, _raw in answers] == [200, 200]
    assert orjson.loads(answers[1][1])["id"] == "k-9"
    for text in ("x", "-1", str(1 << 63), "1.5", ""):
        bad = {**headers, "x-override-bootstrap-room": text}
        assert (await send(client, decode, PATHS["chat"], BODIES["chat"], **bad))[0] == 400
    status, _raw = await send(client, decode, PATHS["completions"], BODIES["completions"], **headers)
    assert status == 400, "completions do not look at them"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"room": "5", "prompt": []}'])
async def test_a_malformed_join_is_refused(client: aiohttp.ClientSession, sglang_pair: Pair, raw: bytes) -> None:
    """The bootstrap takes what decode halves send, and nothing else."""
    prefill, _decode = sglang_pair
    side = f"http://127.0.0.1:{prefill.side_port}"
    async with client.post(side + "/_stub/kv/join", data=raw) as response:
        assert response.status == 400
    async with client.get(side + "/health") as response:
        assert response.status == 200
    async with client.get(side + "/other") as response:
        assert response.status == 404
