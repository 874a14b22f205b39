"""What a pool gives its policy, and what it tells it; and what people may write of policies and workers."""

import asyncio
from collections.abc import Awaitable

import pytest
from attrs import field, frozen

from kernel import ClientGone
from plugins.configuration import Document
from plugins.dispatch.candidates import Candidates
from plugins.dispatch.config import HealthConfig, ModelConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policy import Facts, Site
from plugins.dispatch.worker import Worker
from plugins.dispatch.worker_config import WorkerConfig
from tests.dispatch.policies.test_every_policy import NAMES
from tests.dispatch.scripted import Seen, answer_ok, die, hang, scripted
from tests.dispatch.support import ONCE, QUIET, ask, body_of, exchange_of, loads, pools, running, single

pytestmark = pytest.mark.anyio


@frozen
class Witness:
    """A policy that takes the first candidate, and writes down all that it hears."""

    heard: list[str] = field(factory=list, eq=False)
    cheats: bool = False

    @property
    def unit(self) -> int:
        """What a request usually weighs."""
        return 7

    def start(self, site: Site) -> None:
        """Begin."""
        self.heard.append(f"start {site.model} {site.role}")

    async def stop(self) -> None:
        """End."""
        self.heard.append("stop")

    def prepare(self, facts: Facts) -> Awaitable[None] | None:
        """Take one turn of the loop."""
        self.heard.append("prepare")

        async def work() -> None:
            await asyncio.sleep(0)
            facts.notes = "ready"

        return work()

    def choose(self, candidates: Candidates, facts: Facts) -> Worker:
        """The first one, or one that nobody knows."""
        assert facts.notes == "ready"
        self.heard.append("choose")
        return Worker("http://nobody", 0) if self.cheats else candidates[0]

    def weigh(self, worker: Worker, _facts: Facts) -> int:
        """A number."""
        assert worker.work == 0
        return 5

    def finished(self, worker: Worker, facts: Facts, *, success: bool) -> None:
        """Hear of an ending."""
        assert (worker.load, worker.work, facts.notes) == (0, 0, "ready")
        self.heard.append(f"finished {success}")

    def turned(self, worker: Worker) -> None:
        """Hear of a worker."""
        self.heard.append(f"turned {worker.up}")


async def test_a_policy_hears_of_everything() -> None:
    """Its start comes before any worker's, and each choice ends once."""
    policy = Witness()
    async with scripted(answer_ok) as worker, running(single(worker.url, policy=policy)) as dispatch:
        heard = pools(dispatch)[0]._policy.heard  # type: ignore[attr-defined]
        assert heard is policy.heard
        await ask(dispatch, exchange_of(body_of()))
    assert heard == ["start m generation", "turned True", "prepare", "choose", "finished True", "turned True", "stop"]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_end_of_a_stream_is_a_success_and_a_broken_one_is_not(stream: bool) -> None:
    """Told at the last byte."""

    async def answer(seen: Seen) -> None:
        if stream:
            await seen.begin_stream(b"data: {}\n\n", b"data: [DONE]\n\n")
            await seen.end_stream()
        else:
            await answer_ok(seen)

    async with scripted(answer) as worker:
        policy = Witness()
        async with running(single(worker.url, policy=policy), retry=ONCE) as dispatch:
            await ask(dispatch, exchange_of(body_of(stream=stream)))
            worker.script = die
            await ask(dispatch, exchange_of(body_of(stream=stream)))
        assert [line for line in policy.heard if "finished" in line] == ["finished True", "finished False"]


async def test_a_client_that_leaves_is_no_success() -> None:
    """Nobody knows what the worker has in its cache."""
    policy = Witness()
    async with scripted(hang) as worker, running(single(worker.url, policy=policy)) as dispatch:
        exchange = exchange_of(body_of())
        task = asyncio.create_task(ask(dispatch, exchange))
        await worker.until(lambda: len(worker.seen) == 1)
        assert pools(dispatch)[0].workers[0].work == 5
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        assert loads(dispatch) == [0]
    assert policy.heard[-3:] == ["finished False", "turned True", "stop"]


async def test_a_policy_that_chooses_what_is_no_candidate_is_at_fault() -> None:
    """Nothing is counted and nothing is sent."""
    policy = Witness(cheats=True)
    async with scripted(answer_ok) as worker, running(single(worker.url, policy=policy)) as dispatch:
        with pytest.raises(TypeError, match="the policy Witness chose what is no candidate"):
            await ask(dispatch, exchange_of(body_of()))
        assert worker.seen == []


@pytest.mark.parametrize("name", NAMES)
async def test_every_policy_serves_requests(name: str) -> None:
    """Found by its name, with weights, and with the second worker gone half-way."""
    async with scripted(answer_ok) as one, scripted(answer_ok) as two:
        text = (
            f"plugins: {{dispatch: {{config: {{pools: [{{model: m, policy: {{type: {name}}},"
            f"workers: [{{url: '{one.url}', weight: 2}}, '{two.url}']}}], health: {{interval_seconds: 60}}}}}}}}"
        )
        problems: list[str] = []
        dispatch = Document.parse(text, "kernel.yaml").plugin("dispatch", Dispatch, problems)
        assert problems == []
        assert dispatch is not None
        await dispatch.start()
        assert [worker.weight for worker in pools(dispatch)[0].workers] == [2.0, 1.0]
        for number in range(10):
            answer = await ask(dispatch, exchange_of(body_of(user=f"u{number}")))
            assert answer.json == {"ok": True}
            if number == 4:
                await two.stop()
        assert loads(dispatch) == [0, 0]
        assert len([seen for seen in one.seen if "/v1" in seen.line]) >= 5
        await dispatch.stop()
        await two.start()


def test_what_may_be_written_of_workers() -> None:
    """A URL, or a URL and a weight; what is wrong is named with its line."""

    def problems(workers: str) -> list[str]:
        text = f"plugins:\n  dispatch:\n    config:\n      pools:\n      - model: m\n        workers:\n{workers}"
        found: list[str] = []
        Document.parse(text, "k.yaml").plugin("dispatch", Dispatch, found)
        return found

    assert problems("        - http://a:1\n        - {url: http://b:1, weight: 0.5}\n") == []
    place = "k.yaml:{}: plugins.dispatch.config.pools[0].workers"
    assert problems("        - http://a:1\n        - {url: http://b:1, weigth: 1}\n") == [
        place.format(8) + "[1].weigth: unknown key 'weigth', did you mean 'weight'?"
    ]
    assert problems("        - {weight: 1}\n") == [place.format(7) + "[0]: missing required key 'url'"]
    for weight in ("0", "-1", "1000", "fast"):
        assert problems(f"        - {{url: http://b:1, weight: {weight}}}\n")[0].startswith(
            place.format(7) + "[0].weight: "
        )
    assert problems("        - 7\n") == [place.format(7) + "[0]: expected str, got 7"]
    assert "named twice" in problems("        - http://a:1\n        - {url: http://A:1/}\n")[0]


async def test_a_weight_changes_in_place() -> None:
    """In a reload, in which a URL may also be written in another way; one that is taken back changes nothing."""
    url = "http://127.0.0.1:1"
    async with running(single(url)) as old:
        (worker,) = pools(old)[0].workers
        for config in (WorkerConfig(url.upper() + "/"), WorkerConfig(url, 2.0, bootstrap_port=7)):
            new = Dispatch((ModelConfig("m", workers=(config,)),), health=QUIET)
            new.succeed(old)
            await new.start()
            assert pools(new)[0].workers == (worker,)
            assert (worker.weight, worker.bootstrap_port) == (config.weight, config.bootstrap_port)
            await new.stop()
            assert (worker.weight, worker.bootstrap_port) == (1.0, None)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_slow_start_has_an_end(seconds: float) -> None:
    """It may be none."""
    assert HealthConfig(slow_start_seconds=0).slow_start_seconds == 0
    with pytest.raises(ValueError, match="slow_start_seconds must not be negative, and finite"):
        HealthConfig(slow_start_seconds=seconds)
