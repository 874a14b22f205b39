"""The endpoints that ask about a worker, and the paths that are none."""

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub, StubSettings, run_stub

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("engine", ["openai", "trtllm"])
async def test_health_is_empty_and_counted_apart(client: aiohttp.ClientSession, engine: str) -> None:
    """A health check is answered 200 without a body, and is no request for work."""
    async with run_stub(engine) as stub:
        async with client.get(stub.url + "/health") as response:
            assert (response.status, await response.read()) == (200, b"")
        state = stub.state()
        assert (state.requests, state.probes, state.last_requests) == (0, {"/health": 1}, ())


@pytest.mark.parametrize(("engine", "owner"), [("openai", "stub"), ("trtllm", "tensorrt_llm")])
async def test_models_names_the_model(client: aiohttp.ClientSession, engine: str, owner: str) -> None:
    """The list of models has one card, with the name that the worker was given."""
    async with run_stub(engine, model="tiny") as stub, client.get(stub.url + "/v1/models") as response:
        answer = await response.json()
        (card,) = answer["data"]
        assert (answer["object"], card["id"], card["object"], card["owned_by"]) == ("list", "tiny", "model", owner)
        assert card["created"] > 1_700_000_000


async def test_version_is_an_object(client: aiohttp.ClientSession, plain: Stub) -> None:
    """The version is told as JSON."""
    async with client.get(plain.url + "/version") as response:
        assert isinstance((await response.json())["version"], str)


async def test_server_info_names_the_way_to_a_context_worker(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A context worker's info has its endpoint in a list; a generation worker's has none."""
    infos = []
    for stub in (context, generation):
        async with client.get(stub.url + "/server_info") as response:
            infos.append(await response.json())
    assert infos[0]["disaggregated_params"] == {"ctx_info_endpoint": [context.url]}
    assert infos[1]["disaggregated_params"] == {}
    assert infos[0]["tokens_per_block"] == 32
    assert {"kv_cache_hash_algo", "render_fingerprint"} <= infos[0].keys()


async def test_other_paths_and_methods_are_refused(client: aiohttp.ClientSession, plain: Stub) -> None:
    """An unknown path is 404, a wrong method 405 with the right one named."""
    async with client.post(plain.url + "/v1/responses", json={}) as response:
        assert (response.status, await response.json()) == (404, {"detail": "Not Found"})
    async with client.get(plain.url + "/v1/completions") as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    async with client.get(plain.url + "/server_info") as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("role", "judge"), ("port", -1), ("port", 65_536), ("token_delay", -1.0), ("context_tokens", 0)),
        *(("hold_seconds", float("nan")), ("context_finish", "stop"), ("connector", "usb"), ("side_port", 70_000)),
        *(("pair_seconds", -1.0), ("failure_seconds", -1.0), ("load_failure", "retry"), ("engine_version", "newest")),
    ],
)
def test_bad_settings_are_refused(field: str, value: object) -> None:
    """A setting outside its range is an error that names it."""
    with pytest.raises(ValueError, match=field):
        StubSettings(engine="openai", **{field: value})  # type: ignore[arg-type]


async def test_an_unknown_engine_is_refused() -> None:
    """An engine that there is no file for is an error that names those that there are."""
    with pytest.raises(ValueError, match="openai, sglang, trtllm, vllm"):
        async with run_stub("none"):
            pass
