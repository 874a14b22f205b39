"""What engines and handoffs can be told in YAML."""

import pytest

from kernel import Secret
from plugins.configuration import Document
from plugins.dispatch.apis import apis_of
from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.engines.lmdeploy import LmdeployEngine
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policies.prefix import Prefix
from plugins.dispatch.worker_config import WorkerConfig

FULL = """
plugins:
  dispatch:
    config:
      pools:
        - model: a
          engine:
            type: vllm
            connector: multi
            children: [nixl, lmcache]
            lease_seconds: 20
            reuse_prompt_token_ids: true
          context: {workers: [{url: "http://a:1", bootstrap_port: 8999}]}
          generation: {workers: ["http://a:2"]}
          handoff:
            skip_context_below_tokens: 100
            alone_without_context: true
            held_share: 0.4
            needed_seconds: 1
        - model: b
          engine: {type: sglang, bootstrap_port: null, bootstrap_on_api_port: true, admin_key: {env: ENGINE_TEST_KEY}}
          context: {workers: ["http://b:1"]}
          generation: {workers: ["http://b:2"]}
        - model: d
          engine: {type: lmdeploy, protocol: tcp, link_type: IB}
          context: {workers: ["http://d:1"]}
          generation: {workers: ["http://d:2"]}
        - model: c
          engine:
            type: trtllm
            schedule: generation_first
            max_local_prefill_length: 64
            internal_request_auth_key: {env: ENGINE_TEST_KEY}
            clock_header: x-clock
          context: {workers: ["http://c:1"]}
          generation: {workers: ["http://c:2"], policy: prefix}
"""


def load(text: str) -> tuple[Dispatch | None, list[str]]:
    """What dispatch is configured to be, and what is wrong."""
    problems: list[str] = []
    return Document.parse(text, "kernel.yaml").plugin("dispatch", Dispatch, problems), problems


def test_everything_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field of each engine, and of handoffs."""
    monkeypatch.setenv("ENGINE_TEST_KEY", "k")
    dispatch, problems = load(FULL)
    assert problems == []
    vllm = VllmEngine(connector="multi", children=("nixl", "lmcache"), lease_seconds=20.0, reuse_prompt_token_ids=True)
    trtllm = TrtllmEngine(
        schedule="generation_first",
        max_local_prefill_length=64,
        internal_request_auth_key=Secret("k"),
        clock_header="x-clock",
    )
    assert dispatch == Dispatch(
        (
            ModelConfig(
                "a",
                engine=vllm,
                context=RoleConfig((WorkerConfig("http://a:1", bootstrap_port=8999),)),
                generation=RoleConfig(("http://a:2",)),
                handoff=HandoffConfig(100, alone_without_context=True, held_share=0.4, needed_seconds=1.0),
            ),
            ModelConfig(
                "b",
                engine=SglangEngine(bootstrap_port=None, bootstrap_on_api_port=True, admin_key=Secret("k")),
                context=RoleConfig(("http://b:1",)),
                generation=RoleConfig(("http://b:2",)),
            ),
            ModelConfig(
                "d",
                engine=LmdeployEngine(protocol="tcp", link_type="IB"),
                context=RoleConfig(("http://d:1",)),
                generation=RoleConfig(("http://d:2",)),
            ),
            ModelConfig(
                "c",
                engine=trtllm,
                context=RoleConfig(("http://c:1",)),
                generation=RoleConfig(("http://c:2",), Prefix()),
            ),
        )
    )


@pytest.mark.parametrize(
    ("engine", "more", "problem"),
    [
        ("{type: vllm, connector: nope}", "", "engine.connector: expected one of"),
        ("{type: vllm, connector: multi, children: [nixl, nixl]}", "", "one of the children has to be of"),
        ("{type: sglang, bootstrap_port: 0}", "", "bootstrap_port is from 1 to 65535, got 0"),
        ("sglang", "handoff: {skip_context_below_tokens: 5}", "workers of the engine 'sglang' serve no whole requests"),
        ("sglang", "handoff: {alone_without_context: true}", "workers of the engine 'sglang' serve no whole requests"),
        ("{type: lmdeploy, protocol: rfc}", "", "engine.protocol: expected one of"),
        ("{type: trtllm, clock_header: 'a b'}", "", "clock_header"),
        ("{type: vllm, cache_hit_threshold: 0.5}", "", "cache_hit_threshold is for workers that share a store"),
        ("{type: vllm, connector: lmcache, cache_hit_threshold: 0.0}", "", "'cache_hit_threshold' must be > 0"),
        ("vllm", "handoff: {held_share: 1.0}", "'held_share' must be < 1"),
        ("{type: trtllm, max_local_prefill_length: 5}", "", "the generation policy must be one that knows"),
    ],
)
def test_what_makes_no_sense_is_refused(engine: str, more: str, problem: str) -> None:
    """With its place in the file."""
    pool = f"model: m, engine: {engine}, context: {{workers: ['http://a:1']}}, generation: {{workers: ['http://a:2']}}"
    dispatch, problems = load(f"plugins: {{dispatch: {{config: {{pools: [{{{pool}{more and ', ' + more}}}]}}}}}}")
    assert dispatch is None
    (found,) = problems
    assert found.startswith("kernel.yaml:1: plugins.dispatch.config.pools[0]")
    assert problem in found


def test_what_workers_answer_can_be_said_of_every_engine() -> None:
    """By the names of endpoints."""
    pool = "{model: a, engine: {type: %s, apis: [chat_completions, responses]}, %s}"
    pair = 'context: {workers: ["http://a:1"]}, generation: {workers: ["http://a:2"]}'
    for name, workers in (("openai", 'workers: ["http://a:1"]'), ("vllm", pair), ("sglang", pair), ("trtllm", pair)):
        dispatch, problems = load(f"plugins: {{dispatch: {{config: {{pools: [{pool % (name, workers)}]}}}}}}")
        assert problems == []
        assert dispatch is not None
        assert apis_of(dispatch.pools[0].engine) == {"chat_completions", "responses"}


@pytest.mark.parametrize("apis", ["[]", "[chat]", "[responses, responses]", "responses", "[7]"])
def test_apis_that_there_are_not_are_refused(apis: str) -> None:
    """With the place in the file."""
    _, problems = load(
        "plugins: {dispatch: {config: {pools: "
        f'[{{model: a, engine: {{type: openai, apis: {apis}}}, workers: ["http://a:1"]}}]}}}}}}'
    )
    assert len(problems) == 1
    assert "pools[0].engine" in problems[0]
    assert "apis" in problems[0]


def test_of_an_engine_that_says_nothing_the_usual_is_expected() -> None:
    """One of a third party may know of nothing else."""
    assert apis_of(object()) == {"completions", "chat_completions"}
