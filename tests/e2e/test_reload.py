"""Reloads while streams run: none breaks, a toggle takes effect, and a bad file changes nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.programs import Kernel, kernel, pools, stub, until

STREAMS = 100
TEMPLATE = {"model": "stub", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "chat_template": "x"}
BODY = {"model": "stub", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 120, "stream": True}


def reload(served: Kernel) -> subprocess.CompletedProcess[str]:
    """`kernel reload FILE`."""
    command = [sys.executable, "-m", "plugins.host", "reload", str(served.file)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def show(served: Kernel) -> str:
    """`kernel plugins --config FILE`."""
    command = [sys.executable, "-m", "plugins.host", "plugins", "--config", str(served.file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


async def read_stream(client: httpx.AsyncClient, url: str, started: asyncio.Semaphore) -> str:
    """One whole stream; releases `started` at its first bytes."""
    text = ""
    async with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as answer:
        assert answer.status_code == 200
        async for part in answer.aiter_text():
            if not text:
                started.release()
            text += part
    return text


@pytest.mark.anyio
async def test_a_reload_under_load_breaks_no_stream(tmp_path: Path) -> None:
    """A hundred streams end with `[DONE]` while a toggle is applied, twice, and a bad file is refused."""
    words = ("--engine", "openai", "--token-delay", "0.1", "--allow-chat-template")
    with stub(*words) as worker, kernel(tmp_path, pools(worker[1])) as served:
        assert served.file is not None
        until(lambda: len(served.logged("worker.up")) == 1)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            started = asyncio.Semaphore(0)
            streams = [asyncio.create_task(read_stream(client, served.url, started)) for _ in range(STREAMS)]
            for _ in range(STREAMS):
                await started.acquire()
            refused = await client.post(f"{served.url}/v1/chat/completions", json=TEMPLATE)

            served.file.write_text(pools(worker[1], more="  template_guard: {enabled: false}"))
            accepted = await asyncio.to_thread(reload, served)
            allowed = await client.post(f"{served.url}/v1/chat/completions", json=TEMPLATE)
            served.file.write_text(pools(worker[1], more="  template_gard: {enabled: false}"))
            bad = await asyncio.to_thread(reload, served)
            still_allowed = await client.post(f"{served.url}/v1/chat/completions", json=TEMPLATE)
            running = sum(not stream.done() for stream in streams)
            texts = await asyncio.gather(*streams)

        assert running > 0, "the reloads took longer than the streams: nothing was shown"
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert [refused.status_code, allowed.status_code, still_allowed.status_code] == [400, 200, 200]
        assert accepted.returncode == 0, accepted.stderr
        assert bad.returncode == 2
        assert "kernel.yaml:2: plugins.template_gard" in bad.stderr
        assert "did you mean 'template_guard'?" in bad.stderr
        assert served.metric('kernel_reloads_total{result="refused"}') >= 1
        assert "template_gard" in await asyncio.to_thread(show, served)
        assert served.program.stop() == 0
