"""The configuration as people write it, with engines and policies found by name."""

import pytest

from kernel import DiscoveryError
from plugins.configuration import Document
from plugins.dispatch.config import HealthConfig, ModelConfig, RoleConfig
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.extensions import _load, load_engine, load_policy
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.round_robin import RoundRobin

FULL = """
plugins:
  dispatch:
    config:
      pools:
        - model: smollm2
          engine: openai
          aliases: [gpt-4o]
          workers: ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
          policy: least_loaded
        - model: big
          engine: {type: trtllm, body: msgpack, node_id: 3}
          context: {workers: ["http://a:1"], policy: {type: least_loaded}}
          generation: {workers: ["http://b:1"]}
      health: {interval_seconds: 1, failures: 3}
      connect_timeout_seconds: 1
"""


def load(text: str) -> tuple[Dispatch | None, list[str]]:
    """What dispatch is configured to be, and what is wrong."""
    problems: list[str] = []
    return Document.parse(text, "kernel.yaml").plugin("dispatch", Dispatch, problems), problems


def pools(text: str) -> list[str]:
    """What is wrong with these pools."""
    return load("plugins: {dispatch: {config: {pools: [" + text + "]}}}")[1]


def test_everything_can_be_written() -> None:
    """Engines and policies by name alone, or with their own keys beside the name."""
    dispatch, problems = load(FULL)
    assert problems == []
    assert dispatch == Dispatch(
        (
            ModelConfig(
                "smollm2",
                aliases=("gpt-4o",),
                engine=OpenAIEngine(),
                workers=("http://127.0.0.1:9001", "http://127.0.0.1:9002"),
                policy=LeastLoaded(),
            ),
            ModelConfig(
                "big",
                engine=TrtllmEngine(body="msgpack", node_id=3),
                context=RoleConfig(("http://a:1",), LeastLoaded()),
                generation=RoleConfig(("http://b:1",), RoundRobin()),
            ),
        ),
        health=HealthConfig(interval_seconds=1.0, failures=3),
        connect_timeout_seconds=1.0,
    )
    assert load(FULL)[0] == dispatch


def test_no_configuration_is_no_pools() -> None:
    """A kernel without workers starts, and says that it is not ready."""
    dispatch, problems = load("plugins: {dispatch: }")
    assert (dispatch, problems) == (Dispatch(), [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{model: m, engine: opnai, workers: ['http://a']}", "[0].engine: nothing installed offers kernel.engines"),
        ("{model: m, workers: ['http://a'], policy: cheapest}", "[0].policy: nothing installed offers kernel.policies"),
        ("{model: m, engine: {type: trtllm, bdy: json}}", "[0].engine.bdy: unknown key 'bdy', did you mean 'body'?"),
        ("{model: m, engine: {type: trtllm, body: xml}}", "[0].engine.body: "),
        ("{model: m, workers: ['http://a', 'http://u:secret@b']}", "[0].workers: a worker's address must not hold"),
        ("{model: m, workers: 'http://a'}", "[0].workers: "),
        ("{model: m, workers: ['http://a'], api_key: sk-1}", "[0].api_key: a secret is written"),
        ("{model: m}", "[0]: the engine 'openai' needs workers"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, problem: str) -> None:
    """Every problem has its path, and no secret in it."""
    found = pools(text)
    assert len(found) >= 1
    assert any(f"plugins.dispatch.config.pools{problem}" in line for line in found), found
    assert "secret@" not in str(found)
    assert "sk-1" not in str(found)


def test_extensions_are_found_by_their_entry_points() -> None:
    """Those of this distribution are registered like a third party's."""
    assert (load_engine("openai"), load_engine("trtllm")) == (OpenAIEngine, TrtllmEngine)
    assert (load_policy("round_robin"), load_policy("least_loaded")) == (RoundRobin, LeastLoaded)


def test_an_extension_of_another_kind_cannot_be_used() -> None:
    """The message names the distribution, the entry point and what is missing."""
    with pytest.raises(DiscoveryError, match=r"round_robin = .*: RoundRobin has no plan, body"):
        _load("kernel.policies", "round_robin", "plan", "choose", "body")
