"""How much of a prompt was cached, as real vLLM pairs counted it on both legs of the same request."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.engines.vllm import Connector, VllmEngine
from plugins.dispatch.worker import Role
from tests.dispatch.engines.test_recorded import load, request_of

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
NAMES = ("cached_tokens", "created_cache_tokens", "cache_write_tokens", "cache_read_input_tokens")


def counts_in(usage: dict[str, Any]) -> dict[str, Any]:
    """Every count of cached tokens, wherever it stands."""
    places = [usage, *(value for value in usage.values() if isinstance(value, dict))]
    return {name: place[name] for place in places for name in (*NAMES, "cache_creation_input_tokens") if name in place}


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(("recorded", "connector"), [("nixl", "nixl"), ("example", "shared_storage")])
def test_the_counts_are_those_of_the_worker_that_computed_the_prompt(
    recorded: str, connector: Connector, api: str
) -> None:
    """Found in its cache, and put there: to the generation worker all that it fetched looks cached, or like nothing."""
    recording = load(f"pd_{recorded}_{api}")
    request = request_of(PATHS[api], recording["decode"]["request"]["body"])
    first, second = recording["prefill"]["response"]["body"], recording["decode"]["response"]["body"]
    engine = VllmEngine(connector=connector)
    handoff = engine.read(Role.CONTEXT, request, orjson.dumps(first))
    answer = engine.read(Role.GENERATION, request, orjson.dumps(second), handoff)  # type: ignore[arg-type]
    assert isinstance(answer, bytes)
    told = orjson.loads(answer)["usage"]
    known = {name: value for name, value in counts_in(first["usage"]).items() if value is not None}
    assert {name: counts_in(told)[name] for name in known} == known
    assert known
    assert told.get("prompt_tokens") == second["usage"].get("prompt_tokens")
