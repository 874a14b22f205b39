"""Workers and versions that change at random under load: every request is served, and the books are right."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from kernel import Exchange
from plugins.dispatch.config import HealthConfig, ModelConfig
from plugins.dispatch.extensions import load_policy
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig
from plugins.slots import CONVERSATION, Conversation
from tests.dispatch.membership import Told, found, gauges, pool_of, reloaded, until_ready
from tests.dispatch.scripted import ScriptedWorker, Seen, scripted
from tests.dispatch.support import Answer, ask, body_of, exchange_of, until

pytestmark = pytest.mark.anyio

POLICIES = ("round_robin", "random", "least_loaded", "power_of_two", "conversation", "consistent_hash", "prefix")
WORKERS, ROUNDS, CLIENTS = 6, 60, 8
HEALTH = HealthConfig(interval_seconds=0.05, slow_start_seconds=0.1)
END = b"data: [DONE]\n\n"


async def answer(seen: Seen) -> None:
    """A short stream that takes a few turns of the loop."""
    await seen.begin_stream(b"data: {}\n\n", b"data: {}\n\n")
    await asyncio.sleep(0)
    await seen.send(b"e\r\ndata: [DONE]\n\n\r\n")
    await seen.end_stream()


def requests(chance: random.Random) -> Iterator[Exchange]:
    """Requests of a few conversations."""
    while True:
        exchange = exchange_of(body_of(stream=True, messages=[{"role": "user", "content": "word " * 300}]))
        exchange[CONVERSATION] = Conversation(f"c{chance.randrange(9)}", "x-session-id", None)
        yield exchange


class Churn:
    """One model whose workers and versions change; one worker always stays, so that somebody can be chosen."""

    def __init__(self, workers: list[ScriptedWorker], policy: str, chance: random.Random) -> None:
        self.workers, self.policy, self.chance = workers, policy, chance
        self.told = Told()
        self.serving: Dispatch
        self.answers: list[Answer] = []
        self.running: dict[int, int] = {}
        self.over = False

    def some(self) -> list[WorkerConfig]:
        """Some of the workers, in any order; the first one is always among them and never drains."""
        first, *others = [worker.url for worker in self.workers]
        picked = self.chance.sample(others, self.chance.randrange(WORKERS))
        configs = [WorkerConfig(url, self.chance.choice((1, 2)), draining=self.chance.random() < 0.2) for url in picked]
        return self.chance.sample([WorkerConfig(first), *configs], len(configs) + 1)

    def model(self) -> ModelConfig:
        """A configuration: workers that are found, or named."""
        policy = load_policy(self.policy)()
        if self.chance.random() < 0.7:
            return found(self.told, policy=policy)
        return ModelConfig("m", workers=tuple(self.some()), policy=policy)

    async def begin(self) -> None:
        """Start the first version."""
        self.told.name(*self.some())
        self.serving = Dispatch((found(self.told, policy=load_policy(self.policy)()),), health=HEALTH)
        await self.serving.start()

    async def ask(self) -> None:
        """Ask whichever version serves, until it is over."""
        for exchange in requests(self.chance):
            version = self.serving
            self.running[id(version)] = self.running.get(id(version), 0) + 1
            self.answers.append(await ask(version, exchange))
            self.running[id(version)] -= 1
            if self.over:
                return

    async def reload(self) -> None:
        """Put a version in the place of another one, or give it up at once."""
        old, new = self.serving, await reloaded(self.serving, self.model(), health=HEALTH)
        if self.chance.random() < 0.3:
            await new.stop()
            return
        self.serving = new
        await until(lambda: not self.running.get(id(old)))
        await old.stop()


@pytest.mark.parametrize("policy", POLICIES)
async def test_requests_are_served_while_everything_changes(policy: str) -> None:
    """None fails, no reservation, task or listener is left, and the gauges are at zero when it is over."""
    chance = random.Random(policy)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(scripted(answer)) for _ in range(WORKERS)]
        churn = Churn(workers, policy, chance)
        await churn.begin()
        await until_ready(
            churn.serving, [worker.url for worker in pool_of(churn.serving).workers if not worker.draining]
        )
        clients = [asyncio.create_task(churn.ask()) for _ in range(CLIENTS)]
        for _ in range(ROUNDS):
            done = len(churn.answers)
            if chance.random() < 0.3:
                await churn.reload()
            else:
                churn.told.name(*churn.some())
            await until(lambda done=done: len(churn.answers) > done + CLIENTS)  # type: ignore[misc]
        churn.over = True
        await asyncio.gather(*clients)
        assert [worker.load for worker in pool_of(churn.serving).workers if worker.load or worker.work] == []
        assert gauges()[2] == 0
        await churn.serving.stop()
    assert [answer.rejection for answer in churn.answers if answer.rejection or not answer.body.endswith(END)] == []
    assert len(churn.answers) > ROUNDS * CLIENTS
    assert (gauges(), churn.told.audiences) == ((0, 0, 0), [])
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    assert [name for name in names if "Watch" in name or "Follower" in name] == []
