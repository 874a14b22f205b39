"""What is particular to TensorRT-LLM's workers: bypasses, signatures, and what is sent once."""

from typing import Any, ClassVar

import orjson
import pytest
from attrs import frozen

from kernel import Secret
from plugins.dispatch.candidates import Candidates
from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, run_stub
from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.policy import Facts, Match
from plugins.dispatch.worker import Role, Worker
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import CONVERSATION, Conversation, Payload
from tests.dispatch.engines.pairs import CHAT, Pair, config_of, pair_of
from tests.dispatch.support import ask, exchange_of, pools, running

pytestmark = pytest.mark.anyio

KEY = Secret("shared")


@frozen
class Knows:
    """A policy that says of every worker what it has cached."""

    cached: int
    tells_match: ClassVar[bool] = True

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """The first one."""
        facts.match = Match(self.cached, 100)
        return candidates[0]


@pytest.mark.parametrize(("cached", "phases"), [(0, 1), (49, 1), (50, 0), (100, 0)])
@pytest.mark.parametrize("schedule", ["context_first", "generation_first"])
async def test_a_cached_prompt_skips_the_context_phase(schedule: Any, cached: int, phases: int) -> None:
    """With something cached and no more than the limit to compute; the handoff is then null."""
    engine = TrtllmEngine(schedule=schedule, max_local_prefill_length=50)
    async with (
        run_stub("trtllm", role="context", model="m") as context,
        run_stub("trtllm", role="generation", model="m") as generation,
    ):
        config = ModelConfig(
            "m",
            engine=engine,
            context=RoleConfig((context.url,)),
            generation=RoleConfig((generation.url,), Knows(cached)),
        )
        async with running(config) as dispatch:
            pair = Pair(context, generation, dispatch)
            answer = await pair.ask(CHAT, disaggregated_params={"request_type": "context_only"})
            assert answer.json["choices"]
            assert context.state().requests == phases
            (body,) = [received.body for received in generation.state().last_requests if received.is_work]
            assert isinstance(body, dict)
            assert (body["disaggregated_params"] is None) is (phases == 0)
            await pair.settled()


def test_a_policy_that_does_not_know_what_is_cached_is_refused() -> None:
    """As a mistake in the file."""
    with pytest.raises(ValueError, match="the generation policy must be one that knows, such as kv_events"):
        ModelConfig(
            "m",
            engine=TrtllmEngine(max_local_prefill_length=50),
            context=RoleConfig(("http://a:1",)),
            generation=RoleConfig(("http://b:1",)),
        )


async def test_a_context_phase_that_fails_gives_a_chosen_generation_worker_back() -> None:
    """It was reserved first; `running` sees that nothing is left."""
    async with (
        run_stub("trtllm", role="context", model="m") as context,
        run_stub("trtllm", role="generation", model="m") as generation,
    ):
        config = config_of(TrtllmEngine(), context, generation, skip_context_below_tokens=1)
        async with running(config) as dispatch:
            context.add_fault("status", status=429)
            assert (await Pair(context, generation, dispatch).ask(CHAT)).error.status == 429
            assert generation.state().requests == 0


async def test_a_generation_worker_that_was_not_needed_has_shown_nothing() -> None:
    """It was chosen first and asked nothing, so that its failures in a row are what they were."""
    async with (
        run_stub("trtllm", role="context", model="m") as context,
        run_stub("trtllm", role="generation", model="m") as generation,
    ):
        config = config_of(TrtllmEngine(), context, generation, skip_context_below_tokens=1)
        async with running(config) as dispatch:
            (chosen,) = pools(dispatch)[1].workers
            chosen.circuit.streak = 3
            ends = {**CHAT, "messages": [{"role": "user", "content": ENDS_IN_CONTEXT}]}
            assert (await Pair(context, generation, dispatch).ask(ends)).json["choices"]
            assert (generation.state().requests, chosen.circuit.streak) == (0, 3)


async def test_generation_workers_are_measured_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a preset handoff, which only a worker made for it takes."""
    monkeypatch.setenv("TRTLLM_DISAGG_BENCHMARK_GEN_ONLY", "1")
    async with pair_of(TrtllmEngine()) as pair:
        await pair.ask(CHAT)
        assert pair.context.state().requests == 0
        (body,) = [received.body for received in pair.generation.state().last_requests if received.is_work]
        assert isinstance(body, dict)
        preset = {"request_type": "generation_only", "first_gen_tokens": [7], "ctx_request_id": 1}
        assert (body["disaggregated_params"], body["ignore_eos"]) == (preset, True)


@pytest.mark.parametrize("schedule", ["context_first", "generation_first"])
@pytest.mark.parametrize("stream", [False, True])
async def test_workers_with_a_key_are_sent_signatures(schedule: Any, stream: bool) -> None:
    """The stubs check them on both legs, those of a sub-agent too; the affinity is in no body."""
    engine = TrtllmEngine(schedule=schedule, internal_request_auth_key=KEY)
    async with pair_of(engine, auth_key="shared") as pair:
        exchange = exchange_of(orjson.dumps({**CHAT, "stream": stream}))
        exchange[CONVERSATION] = Conversation("c-1", "x-session-id", subagent_affinity="parent")
        answer = await ask(pair.dispatch, exchange)
        assert answer.rejection is None
        for stub in pair.stubs:
            (received,) = [received for received in stub.state().last_requests if received.is_work]
            assert received.header("x-trtllm-subagent-affinity-id") == "parent"
            assert (received.header("x-trtllm-disagg-auth") is not None) is (stub is pair.generation)
            assert "parent" not in str(received.body)
        await pair.settled()
    assert "shared" not in repr(engine)


async def test_an_affinity_that_no_header_can_hold_is_not_told() -> None:
    """A client may send such bytes; the request is served all the same."""
    async with pair_of(TrtllmEngine(internal_request_auth_key=KEY), auth_key="shared") as pair:
        exchange = exchange_of(orjson.dumps(CHAT))
        exchange[CONVERSATION] = Conversation("c-1", "x-session-id", subagent_affinity="caf\xe9")
        answer = await ask(pair.dispatch, exchange)
        assert answer.rejection is None
        for stub in pair.stubs:
            (received,) = [received for received in stub.state().last_requests if received.is_work]
            assert received.header("x-trtllm-subagent-affinity-id") is None


async def test_a_sub_agent_without_a_key_is_told_of_the_mistake() -> None:
    """No worker is asked; without the affinity it would silently lose what its parent has cached."""
    async with pair_of(TrtllmEngine()) as pair:
        exchange = exchange_of(orjson.dumps(CHAT))
        exchange[CONVERSATION] = Conversation("c-1", "x-session-id", subagent_affinity="parent")
        error = (await ask(pair.dispatch, exchange)).error
        assert (error.status, error.code) == (500, "misconfigured")
        assert error.message == "sub-agents need an internal_request_auth_key for this model's workers"
        assert [stub.state().requests for stub in pair.stubs] == [0, 0]
        exchange = exchange_of(orjson.dumps(CHAT))
        exchange[CONVERSATION] = Conversation("c-1", "x-session-id")
        assert (await ask(pair.dispatch, exchange)).rejection is None


async def test_another_key_is_refused_by_the_worker() -> None:
    """As a fault of the request, which is what it says."""
    async with pair_of(TrtllmEngine(internal_request_auth_key=Secret("other")), auth_key="shared") as pair:
        assert (await pair.ask(CHAT)).error.status == 400
        pair.context.reset()


async def test_a_remote_tail_is_sent_once() -> None:
    """Not to another worker either, also where the first one could not be reached."""
    answer = {
        "choices": [
            {
                "message": {"role": "assistant", "content": "a"},
                "finish_reason": "length",
                "disaggregated_params": {"ctx_request_id": 1, "disagg_request_id": 2, "remote_tail_start": 3},
            }
        ]
    }
    request = Request(CHAT_COMPLETIONS, Payload(b"", dict(CHAT)), False)
    handoff = TrtllmEngine().read(Role.CONTEXT, request, orjson.dumps(answer))
    assert isinstance(handoff, Handoff)
    assert handoff.once
    del answer["choices"][0]["disaggregated_params"]["remote_tail_start"]  # type: ignore[attr-defined]
    handoff = TrtllmEngine().read(Role.CONTEXT, request, orjson.dumps(answer))
    assert isinstance(handoff, Handoff)
    assert not handoff.once
