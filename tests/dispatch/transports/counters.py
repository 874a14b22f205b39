"""What a loop and its process hold: timers that are still to go off, and sockets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest


def record_timers(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.TimerHandle]:
    """Every timer that the running loop is asked for from now on."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    for name in ("call_at", "call_later"):
        ask = getattr(loop, name)

        def record(*arguments: Any, ask: Any = ask, **options: Any) -> asyncio.TimerHandle:
            timer: asyncio.TimerHandle = ask(*arguments, **options)
            if hasattr(timer, "when"):  # uvloop has none for what is to be done at once
                timers.append(timer)
            return timer

        monkeypatch.setattr(loop, name, record)
    return timers


def sockets() -> set[str]:
    """The sockets of this process, where it can know them."""
    folder = Path("/proc/self/fd")
    names = {str(path.readlink()) for path in folder.iterdir() if path.is_symlink()} if folder.exists() else set()
    return {name for name in names if name.startswith("socket:")}
