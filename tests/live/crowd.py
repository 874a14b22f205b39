"""All clients at the same time, through the kernel to a real vLLM pair: what each made of each case."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from attrs import define, evolve, field, frozen

from tests.clients.agents import CLAUDE, CODEX, Agent, Outcome
from tests.clients.client import Client, started
from tests.clients.rows import ROWS, Row
from tests.clients.tap import tapped
from tests.live.pair import Front, Pair
from tests.live.subjects import PLAIN
from tests.live.vllm import CONTEXT
from tests.live.worker import MODEL, until

SECONDS: Final = 400.0
"""How long a client waits for an engine that has two processors for all of them, or a part of these."""

STORY: Final = "Write a very long story about a dragon."
"""A prompt after which the model goes on and on."""

WEATHER: Final = "What is the weather in Rome?"
LONG: Final = "word " * CONTEXT * 2
COUNTED: Final = "word " * 200
PROMPTS: Final = {
    "tool": WEATHER,
    "streamed tool": WEATHER,
    "long": LONG,
    "long stream": LONG,
    "count": COUNTED,
    "killed": STORY,
    "leave": STORY,
}

SCRIPTED: Final = "scripted"
"""A model whose workers are stubs: a model of a real engine's size for tests does not use the tools of agents."""

DONE: Final = "Done: hi there."
AGENTS: Final = (CLAUDE, CODEX)
AGENT_CASES: Final = ("stream", "tool", "bad", "long", "killed")

Told = dict[str, Any]
Made = Any
"""What a client made of a case: what a library's program told, or an agent's `Run`."""


@frozen
class Run:
    """How an agent's run ended, what statuses it got for what it asked, and where it worked."""

    outcome: Outcome
    statuses: dict[str, set[int]]
    folder: Path


@define(eq=False)
class Crowd:
    """All clients, each a program of its own that is started when it is first needed."""

    served: Front
    pair: Pair
    folder: Path
    programs: dict[Row, Client] = field(factory=dict)
    told: dict[str, dict[str, "Future[Any]"]] = field(factory=dict)
    stack: ExitStack = field(factory=ExitStack)

    def of(self, client: Row | Agent, case: str) -> Made:
        """What came of a case for a client: a library's answer, or an agent's `Run`; at first all are asked."""
        if case not in self.told:
            self.told[case] = {}  # if nobody can be asked it is not tried again for each of them
            self.revive()
            self.told[case] = self._ask(case)
        return self.told[case][client.name].result()

    def revive(self) -> None:
        """Have workers that are well, and known to be."""
        self.pair.revive()
        until(self.served.healthy, SECONDS)

    def _ask(self, case: str) -> dict[str, "Future[Any]"]:
        jobs: dict[str, Callable[[], Any]] = {}
        for row in ROWS:
            if case in row.cases:
                question: Told = {"api": row.api, "case": case, "prompt": PROMPTS.get(case, PLAIN), "forced": True}
                asks = self._program(row).ask
                jobs[row.name] = partial(asks, seconds=SECONDS, url=self.served.url, model=MODEL, **question)
        if case in AGENT_CASES:
            jobs |= {agent.name: partial(self._run, agent, case) for agent in AGENTS}
        with ThreadPoolExecutor(len(jobs)) as pool:
            coming = {name: pool.submit(job) for name, job in jobs.items()}
            if case == "killed":
                self._kill(len(jobs))
        return coming

    def _program(self, row: Row) -> Client:
        if row not in self.programs:
            self.programs[row] = self.stack.enter_context(started(row.library, Path(mkdtemp(dir=self.folder))))
        return self.programs[row]

    def _run(self, agent: Agent, case: str) -> Run:
        folder = Path(mkdtemp(dir=self.folder))
        call = f'[calls {agent.tool} {{"{agent.field}": "echo hi > told"}}] [says {DONE}]'
        model, prompt = {"tool": (SCRIPTED, call), "bad": ("nobody", PLAIN)}.get(
            case, (MODEL, PROMPTS.get(case, PLAIN))
        )
        # what it usually sends would take an engine without a GPU minutes, and is too long for the model
        used = evolve(agent, brief=case in {"stream", "killed"})
        with tapped(self.served.url) as tap:
            return Run(used.run(folder, tap.url, model, prompt, SECONDS), tap.statuses(), folder)

    def _kill(self, clients: int) -> None:
        """End the generation worker when it works for so many, and all have been given something."""
        worker, made = self.pair.generation, "vllm:generation_tokens_total"
        try:
            until(lambda: worker.metric("vllm:num_requests_running") == clients, SECONDS)
            before = worker.metric(made)
            until(lambda: worker.metric(made) >= before + 4 * clients, SECONDS)
        finally:
            worker.kill()

    def left(self) -> int:
        """How many clients the log says have left."""
        return sum(line["outcome"] == "client_gone" for line in self.served.finished())


@contextmanager
def crowd(served: Front, pair: Pair, folder: Path) -> Iterator[Crowd]:
    """All clients, ended with the block."""
    made = Crowd(served, pair, folder)
    with made.stack:
        yield made
