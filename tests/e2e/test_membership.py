"""Workers that come and go while streams run: none breaks, and nothing stays reserved."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx
import pytest

from tests.e2e.programs import Kernel, kernel, pools, stub, until

SWAPS = 50
CLIENTS = 24
STREAMS = 100
BODY = {"model": "stub", "messages": [{"role": "user", "content": "hi"}], "stream": True}
LIMITS = httpx.Limits(max_connections=None)
RESERVED = 'kernel_reservations{model="stub",role="generation"}'
WORKERS = 'kernel_workers{model="stub",role="generation"}'
UP = 'kernel_workers_up{model="stub",role="generation"}'


def configuration(file: Path, policy: str) -> str:
    """A pool whose workers a file names."""
    return f"""plugins:
  dispatch:
    config:
      health: {{interval_seconds: 0.2, failures: 1, slow_start_seconds: 0}}
      pools:
        - model: stub
          policy: {policy}
          discovery: {{type: file, path: {file}, poll_seconds: 0.01}}
"""


def replace(file: Path, *workers: Any) -> None:
    """Give the file another content in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(workers))
    fresh.replace(file)


def state(url: str) -> Any:
    """What a stub says of itself."""
    with urlopen(f"{url}/_stub/state", timeout=10) as answer:
        return json.loads(answer.read())


async def wait_for(holds: Callable[[], bool]) -> None:
    """Wait for a condition without holding the streams up."""
    await asyncio.to_thread(until, holds)


async def stream(client: httpx.AsyncClient, url: str, tokens: int, begun: Callable[[], object] = lambda: None) -> str:
    """One whole stream; `begun` is called at its first bytes."""
    text = ""
    async with client.stream("POST", f"{url}/v1/chat/completions", json={**BODY, "max_tokens": tokens}) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for part in answer.aiter_text():
            if not text:
                begun()
            text += part
    return text


async def keep_asking(client: httpx.AsyncClient, url: str, over: asyncio.Event) -> list[str]:
    """One stream after the other, until it is over."""
    texts = []
    while not over.is_set():
        texts.append(await stream(client, url, 8))
    return texts


@pytest.mark.anyio
@pytest.mark.parametrize("policy", ["least_loaded", "conversation"])
async def test_a_file_that_is_swapped_under_load_breaks_no_stream(tmp_path: Path, policy: str) -> None:
    """Of three workers one at a time leaves, returns, drains, or changes its weight."""
    file = tmp_path / "workers.json"
    words = ("--engine", "openai", "--token-delay", "0.02")
    with stub(*words) as (_, a), stub(*words) as (_, b), stub(*words) as (_, c):
        replace(file, a, b)
        turns: list[tuple[Any, ...]] = [(b, c), (c, a), ({"url": a, "draining": True}, c), (a, {"url": b, "weight": 3})]
        with kernel(tmp_path, configuration(file, policy)) as served:
            until(lambda: served.metric(UP) == 2)
            async with httpx.AsyncClient(timeout=60, limits=LIMITS) as client:
                over = asyncio.Event()
                asking = [asyncio.create_task(keep_asking(client, served.url, over)) for _ in range(CLIENTS)]
                for turn in range(SWAPS):
                    replace(file, *turns[turn % len(turns)])
                    await wait_for(lambda turn=turn: found(served) == turn + 2)  # type: ignore[misc]
                over.set()
                texts = [text for some in await asyncio.gather(*asking) for text in some]
            assert len(texts) > CLIENTS
            assert all(text.endswith("data: [DONE]\n\n") for text in texts)
            assert (served.metric(RESERVED), served.metric(WORKERS)) == (0, 2)
            assert served.logged("leg.failed") == served.logged("workers.refused") == []
            assert [state(url)["running"] for url in (a, b, c)] == [0, 0, 0]
            assert all(state(url)["requests"] > 0 for url in (a, b, c))
            assert served.program.stop() == 0


def found(served: Kernel) -> float:
    """How many lists of workers were found."""
    return served.metric('kernel_discoveries_total{model="stub",result="accepted",role="generation"}')


@pytest.mark.anyio
async def test_a_reload_that_changes_one_worker_breaks_no_stream(tmp_path: Path) -> None:
    """A hundred streams go on, also those of the worker that is gone; those that stay are not probed anew."""
    words = ("--engine", "openai", "--token-delay", "0.1")
    with (
        stub(*words) as (_, stays),
        stub(*words) as (_, leaves),
        stub(*words) as (_, joins),
        kernel(tmp_path, pools(stays, leaves)) as served,
    ):
        assert served.file is not None
        until(lambda: served.metric(UP) == 2)
        async with httpx.AsyncClient(timeout=60, limits=LIMITS) as client:
            begun = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(stream(client, served.url, 120, begun.release)) for _ in range(STREAMS)]
            for _ in range(STREAMS):
                await begun.acquire()
            served.file.write_text(pools(stays, joins))
            command = [sys.executable, "-m", "plugins.host", "reload", str(served.file)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            before = state(leaves)["requests"]
            texts = await asyncio.gather(*(stream(client, served.url, 2) for _ in range(20)))
            running = sum(not task.done() for task in tasks)
            texts += await asyncio.gather(*tasks)
        assert running > 0, "the reload took longer than the streams: nothing was shown"
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert (state(leaves)["requests"], state(leaves)["running"]) == (before, 0)
        assert state(joins)["requests"] > 0
        assert sorted(line["worker"] for line in served.logged("worker.up")) == sorted([stays, leaves, joins])
        until(lambda: (served.metric(WORKERS), served.metric(UP), served.metric(RESERVED)) == (2, 2, 0))
        assert served.program.stop() == 0
