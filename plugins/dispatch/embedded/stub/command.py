"""The command line of a stub worker, and the life of its process."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from threading import Thread

from plugins.dispatch.embedded.stub.engines import ENGINES
from plugins.dispatch.embedded.stub.server import Stub
from plugins.dispatch.embedded.stub.settings import (
    CONNECTORS,
    CONTEXT_FINISHES,
    LOAD_FAILURES,
    ROLE_NAMES,
    ROLES,
    StubSettings,
)

_STDIN = 0
_EXIT_FAULT = 70


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m plugins.dispatch.embedded.stub",
        description="A worker without a model: speaks an engine's protocol, fails on command. "
        "Prints READY and its address once it serves.",
    )
    made.add_argument("--engine", required=True, choices=sorted(ENGINES))
    made.add_argument("--role", default="both", choices=(*ROLES, *ROLE_NAMES), help="the phase that it serves")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=0, help="0 takes a free one")
    made.add_argument("--model", default="stub", metavar="NAME")
    made.add_argument("--token-delay", type=float, default=0.0, metavar="SECONDS")
    made.add_argument("--context-tokens", type=int, default=131_072, metavar="N", help="longest prompt and answer")
    made.add_argument("--hold-seconds", type=float, default=30.0, metavar="SECONDS", help="life of a handoff")
    made.add_argument("--keep-alive", type=float, default=5.0, metavar="SECONDS", help="life of an idle connection")
    made.add_argument("--context-finish", default="length", choices=CONTEXT_FINISHES)
    made.add_argument("--tokens-per-block", type=int, default=32, metavar="N")
    made.add_argument("--fetch-seconds", type=float, default=10.0, metavar="SECONDS", help="patience with a fetch")
    _add_pair_arguments(made)
    made.add_argument("--require-msgpack", action="store_true", help="refuse JSON bodies")
    made.add_argument("--allow-fault-header", action="store_true", help="obey the header x-stub-fault")
    made.add_argument("--allow-chat-template", action="store_true", help="take chat templates from requests")
    made.add_argument("--allow-script", action="store_true", help="obey [says TEXT] and [calls TOOL {...}] in prompts")
    made.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    return made


def _add_pair_arguments(made: argparse.ArgumentParser) -> None:
    """Add what workers of a pair are told about each other."""
    made.add_argument("--connector", default="nixl", choices=CONNECTORS, help="how vllm workers hand over")
    made.add_argument("--engine-version", default="", metavar="VERSION", help="the release to behave as")
    made.add_argument("--side-port", type=int, default=0, help="where other workers ask; 0 takes a free one")
    made.add_argument("--pair-seconds", type=float, default=300.0, metavar="SECONDS", help="wait for the other half")
    made.add_argument("--failure-seconds", type=float, default=5.0, metavar="SECONDS", help="until one is known dead")
    made.add_argument("--load-failure", default="fail", choices=LOAD_FAILURES, help="what vllm does without KV blocks")
    made.add_argument("--storage-path", default="", metavar="FOLDER", help="what shared-storage and lmcache share")
    made.add_argument("--bidirectional", action="store_true", help="vllm decode answers have handoff fields too")
    made.add_argument("--side-on-api-port", action="store_true", help="sglang has its bootstrap on the API port")
    made.add_argument("--admin-key", default="", metavar="KEY", help="what /abort_request of sglang asks for")
    made.add_argument("--auth-key", default="", metavar="KEY", help="with what trtllm checks signatures")
    made.add_argument("--clock-skew", type=float, default=0.0, metavar="SECONDS", help="how far trtllm's clock is off")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to end; the exit code is 0, or 2 for a bad command line."""
    options = vars(parser().parse_args(arguments))
    parent_pipe = options.pop("parent_pipe")
    try:
        settings = StubSettings(**options)
    except ValueError as error:
        sys.stderr.write(f"stub: {error}\n")
        return 2
    try:
        asyncio.run(_serve(settings, parent_pipe=parent_pipe))
    except OSError as error:
        sys.stderr.write(f"stub: cannot listen on {settings.host} port {settings.port}: {error.strerror}\n")
        return 1
    return 0


async def _serve(settings: StubSettings, *, parent_pipe: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if parent_pipe:
        # A thread, because an event loop cannot watch every kind of standard input.
        Thread(target=_watch_parent, args=(loop, ended), daemon=True).start()
    stub = Stub(settings, exit=lambda: os._exit(_EXIT_FAULT))
    await stub.start()
    try:
        sys.stdout.write(f"READY {stub.url}\n")
        sys.stdout.flush()
        await ended.wait()
    finally:
        await stub.stop()


def _watch_parent(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    while os.read(_STDIN, 4_096):
        pass
    loop.call_soon_threadsafe(ended.set)
