"""What the configuration of dispatch may say."""

from typing import Any

import pytest

from kernel import Secret
from plugins.dispatch.config import HealthConfig, ModelConfig, RoleConfig
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.worker import Role

A, B = RoleConfig(("http://a:1",)), RoleConfig(("http://b:1",))


def test_equal_configuration_makes_equal_plugins() -> None:
    """Run-time state is no part of what is compared in a reload."""
    model = ModelConfig("m", workers=("http://a:1",))
    assert Dispatch((model,)) == Dispatch((ModelConfig("m", workers=("http://a:1",)),))
    assert Dispatch((model,)) != Dispatch((ModelConfig("m", workers=("http://b:1",)),))
    assert Dispatch((model,)) != Dispatch((model,), health=HealthConfig(failures=3))


def test_a_single_leg_engine_has_one_pool() -> None:
    """`workers` and `policy` of the model are its generation pool's."""
    model = ModelConfig("m", workers=("http://a:1",), policy=LeastLoaded())
    assert model.roles() == {Role.GENERATION: RoleConfig(("http://a:1",), LeastLoaded())}


def test_a_relay_has_two_pools() -> None:
    """`context` and `generation` stand for themselves."""
    model = ModelConfig("m", engine=TrtllmEngine(), context=A, generation=B)
    assert model.roles() == {Role.CONTEXT: A, Role.GENERATION: B}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "'openai' needs workers"),
        ({"workers": ()}, "at least one worker"),
        ({"workers": ("http://a:1",), "context": A}, "'openai' takes workers, not context"),
        ({"workers": ("http://a:1", "HTTP://A:1/")}, "named twice"),
        ({"workers": ("a:1",)}, "worker's address"),
        ({"engine": TrtllmEngine()}, "'trtllm' needs context and generation"),
        ({"engine": TrtllmEngine(), "context": A}, "'trtllm' needs context and generation"),
        ({"engine": TrtllmEngine(), "context": A, "generation": B, "workers": ("http://c:1",)}, "not workers"),
        ({"engine": TrtllmEngine(), "context": A, "generation": B, "policy": LeastLoaded()}, "not policy"),
        ({"workers": ("http://a:1",), "model": " "}, "a model's name"),
        ({"workers": ("http://a:1",), "model": "a\nb"}, "a model's name"),
        ({"workers": ("http://a:1",), "aliases": ("",)}, "a model's name"),
        ({"workers": ("http://a:1",), "api_key": Secret("a\nb")}, "printable ASCII"),
    ],
)
def test_a_model_that_does_not_fit_its_engine_is_refused(fields: dict[str, Any], message: str) -> None:
    """The message names the engine and what it takes."""
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"model": "m", **fields})


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (ModelConfig("m", workers=("http://b:1",)), "'m' stands twice"),
        (ModelConfig("n", aliases=("m",), workers=("http://b:1",)), "'m' stands twice"),
        (ModelConfig("n", aliases=("n",), workers=("http://b:1",)), "'n' stands twice"),
        (ModelConfig("n", workers=("http://A:1/",)), "http://a:1 stands in two places"),
        (ModelConfig("n", engine=TrtllmEngine(), context=B, generation=B), "http://b:1 stands in two places"),
    ],
)
def test_names_and_workers_are_unique_over_all_pools(second: ModelConfig, message: str) -> None:
    """A request has one service, and a worker's load is counted in one place."""
    with pytest.raises(ValueError, match=message):
        Dispatch((ModelConfig("m", workers=("http://a:1",)), second))


@pytest.mark.parametrize(
    "fields",
    [
        {"interval_seconds": 0},
        {"timeout_seconds": -1},
        {"interval_seconds": float("inf")},
        {"interval_seconds": float("nan")},
        {"path": "health"},
        {"path": "/he alth"},
        {"failures": 0},
    ],
)
def test_health_settings_have_bounds(fields: dict[str, Any]) -> None:
    """Durations are positive and finite, the path begins with a slash."""
    with pytest.raises(ValueError):  # noqa: PT011
        HealthConfig(**fields)


@pytest.mark.parametrize("number", [-1, 256])
def test_a_node_id_has_eight_bits(number: int) -> None:
    """TensorRT-LLM's ids have no room for more."""
    with pytest.raises(ValueError, match="node_id"):
        TrtllmEngine(node_id=number)


def test_engines_of_equal_configuration_are_equal() -> None:
    """An engine without fields is equal to another of its kind only."""
    assert OpenAIEngine() == OpenAIEngine()
    assert TrtllmEngine() != TrtllmEngine(body="msgpack")
