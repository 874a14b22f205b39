"""What the YAML may say of discoveries."""

from pathlib import Path

import pytest

from kernel import find_extension
from plugins.configuration import Document
from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.discovery.file import FileDiscovery
from plugins.dispatch.discovery.static import StaticDiscovery
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.extensions import load_discovery
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig

TEXT = """plugins:
  dispatch:
    config:
      pools:
        - {}
"""


def read(pool: str) -> tuple[Dispatch | None, list[str]]:
    """Dispatch with one pool, and the problems."""
    problems: list[str] = []
    dispatch = Document.parse(TEXT.format(pool), "k.yaml").plugin("dispatch", Dispatch, problems)
    return dispatch, [problem.removeprefix("k.yaml:5: plugins.dispatch.config.pools") for problem in problems]


def model(pool: str) -> ModelConfig:
    """A pool that is right."""
    dispatch, problems = read(pool)
    assert problems == []
    assert dispatch is not None
    return dispatch.pools[0]


@pytest.mark.parametrize(("name", "kind"), [("static", StaticDiscovery), ("file", FileDiscovery)])
def test_a_discovery_is_an_entry_point(name: str, kind: type) -> None:
    """Of a group of its own."""
    assert find_extension("kernel.discovery", name).load() is load_discovery(name) is kind


def test_workers_are_named_or_found() -> None:
    """For each role, or for the one that a single leg has."""
    file = "{type: file, path: w.yaml, poll_seconds: 0.5}"
    found = FileDiscovery(Path("w.yaml"), 0.5)
    assert model(f"{{model: m, discovery: {file}}}") == ModelConfig("m", discovery=found)
    context = f"context: {{discovery: {file}, policy: least_loaded}}"
    pair = model(f"{{model: m, engine: vllm, {context}, generation: {{workers: ['http://b:1']}}}}")
    assert pair.context is not None
    assert (pair.context.discovery, pair.generation) == (found, RoleConfig(("http://b:1",)))
    assert isinstance(pair.engine, VllmEngine)
    (role,) = model(f"{{model: m, policy: random, discovery: {file}}}").roles().values()
    assert role.finder() == found


def test_workers_are_what_static_discovery_finds() -> None:
    """It is the long way to write them."""
    worker = "{url: 'HTTP://a:1/', draining: true}"
    short = model(f"{{model: m, workers: [{worker}]}}")
    long = model(f"{{model: m, discovery: {{type: static, workers: [{worker}]}}}}")
    (one,), (other,) = short.roles().values(), long.roles().values()
    assert list(one.urls()) == list(other.urls()) == ["http://a:1"]
    assert one.finder() == StaticDiscovery((WorkerConfig("http://a:1", draining=True),))


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ("{model: m}", "[0]: the engine 'openai' needs workers"),
        ("{model: m, workers: ['http://a:1'], discovery: {type: file, path: w}}", "[0]: the engine 'openai' takes"),
        ("{model: m, discovery: {type: file}}", "[0].discovery: missing required key 'path'"),
        ("{model: m, discovery: file}", "[0].discovery: missing required key 'path'"),
        ("{model: m, discovery: {type: file, path: w, poll_seconds: 0}}", "[0].discovery.poll_seconds: "),
        ("{model: m, discovery: {type: file, path: [w]}}", "[0].discovery.path: expected Path"),
        ("{model: m, discovery: {type: flie, path: w}}", "[0].discovery: nothing installed offers kernel.discovery"),
        ("{model: m, discovery: {type: static, workers: []}}", "[0].discovery.workers: there must be at least one"),
        ("{model: m, discovery: {type: static, workers: ['a']}}", "[0].discovery.workers: a worker's address is"),
        ("{model: m, engine: vllm, context: {}, generation: {}}", "[0].context: a role has either workers or a disc"),
        (
            "{model: m, engine: vllm, context: {workers: ['http://a:1'], discovery: {type: file, path: w}}}",
            "[0].context: a role has either workers or a discovery",
        ),
        ("{model: m, engine: vllm, discovery: {type: file, path: w}}", "[0]: the engine 'vllm' takes context and"),
    ],
)
def test_what_does_not_fit_is_refused(pool: str, problem: str) -> None:
    """With its place."""
    dispatch, problems = read(pool)
    assert dispatch is None
    assert problems[0].startswith(problem), problems


def test_a_worker_that_is_named_by_a_discovery_stands_nowhere_else() -> None:
    """As far as that can be known before anything runs."""
    static = "{discovery: {type: static, workers: ['http://a:1']}}"
    _, (problem,) = read(f"{{model: m, engine: vllm, context: {{workers: ['http://a:1']}}, generation: {static}}}")
    assert problem.endswith("the worker http://a:1 stands in two places")
