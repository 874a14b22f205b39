"""A program that becomes another one, which gives way to others and ends when the process that started it is gone."""

import ctypes
import os
import signal
import sys

NICE = 10
PARENT_DEATH = 1  # prctl(2): the signal that comes when the parent ends; it is kept when a process becomes another


def become(parent: int, words: list[str]) -> None:
    """Become the program WORDS, unless the parent has gone already."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM)
    if os.getppid() == parent:
        os.execv(words[0], words)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
