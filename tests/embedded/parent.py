"""Stands for a kernel that is killed: starts two workers, prints their process ids, waits for ever."""

import asyncio
import signal

from plugins.dispatch.embedded.launcher import EmbeddedWorkers


def main() -> None:
    """Start, tell, wait."""
    workers = EmbeddedWorkers()
    asyncio.run(workers.start(2, progress=lambda _line: None))
    print(*workers.pids, flush=True)  # noqa: T201 - the test reads it
    signal.pause()


if __name__ == "__main__":
    main()
