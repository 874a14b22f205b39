"""The embedded default: workers beside the kernel, the configuration that names them, and what to try first."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from plugins.dispatch.embedded.launcher import EmbeddedError, EmbeddedWorkers, missing
from plugins.host.failure import CONFIGURATION, Failure

MODEL: Final = "smollm2"
WORKERS: Final = 2
APIS: Final = (
    *("completions", "chat_completions", "messages", "count_tokens"),
    *("embeddings", "rerank", "tokenize", "detokenize"),
)
"""What llama.cpp answers as clients expect it, embeddings and ranks with other models than this one.

Its streams of Responses lack numbers and indexes, without which SDKs stumble: those are translated.
"""

NO_WORKER: Final = ("http://127.0.0.1:1",)
"""Stands for the workers where the default is looked at but does not run."""


def configuration(urls: Iterable[str] = NO_WORKER) -> str:
    """The YAML that makes `urls` the workers of the one model."""
    return f"""\
plugins:
  dispatch:
    config:
      pools:
        - model: {MODEL}
          engine: {{type: openai, apis: {json.dumps(APIS)}}}
          workers: {json.dumps([*urls])}
          policy: {{type: least_loaded}}
"""


@contextmanager
def embedded_workers(progress: Callable[[str], None]) -> Iterator[list[str]]:
    """Workers that run for the length of a `with` block, and not longer than this process; gives their URLs.

    Raises:
        Failure: a package is missing, a worker did not start, or a signal came first.
    """
    if (message := missing()) is not None:
        raise Failure(message, CONFIGURATION)
    workers = EmbeddedWorkers(model_name=MODEL)
    try:
        yield asyncio.run(_start(workers, progress))
    except EmbeddedError as error:
        raise Failure(str(error)) from None
    finally:
        asyncio.run(workers.stop())


async def _start(workers: EmbeddedWorkers, progress: Callable[[str], None]) -> list[str]:
    start = asyncio.ensure_future(workers.start(WORKERS, progress=progress))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, start.cancel)
    try:
        return await start
    except asyncio.CancelledError:
        raise Failure("stopped before it was ready") from None
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def invitation(listen: str) -> str:
    """The three commands that a newcomer tries next, for the address that the kernel listens on."""
    host, _, port = listen.rpartition(":")
    reachable = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - shown, not bound
    base = f"http://{reachable}:{port}"
    url = shlex.quote(f"{base}/v1/chat/completions")
    request = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello"}]}
    plain, streamed = (json.dumps(body, separators=(",", ":")) for body in (request, {**request, "stream": True}))
    return "\n".join(
        (
            f"ready on {base}, try in another terminal:",
            "",
            f"  curl {url} -d '{plain}'",
            f"  curl -N {url} -d '{streamed}'",
            f"  {own_command()} plugins",
        )
    )


def own_command() -> str:
    """How this program can be called from the shell."""
    script = Path(sys.argv[0])
    found = shutil.which("kernel")
    with contextlib.suppress(OSError):
        if found is not None and script.name == "kernel" and script.samefile(found):
            return "kernel"
    if script.name == "kernel":
        return os.path.relpath(script)
    return f"{os.path.relpath(sys.executable)} -m plugins.host"
