"""The stub worker as a process."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from plugins.dispatch.embedded.stub.command import main, parser
from plugins.dispatch.embedded.stub.settings import StubSettings
from tests.stub.support import CHAT, PATHS, texts

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start a worker, wait until it is ready, and give the process and its address."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plugins.dispatch.embedded.stub", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert started.stdout is not None
        word, _, url = (await started.stdout.readline()).decode().strip().partition(" ")
        assert word == "READY"
        yield started, url
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it(number: signal.Signals) -> None:
    """It serves, says so in exactly one line, and ends on a signal with code 0."""
    async with process("--engine", "trtllm", "--role", "context") as (started, url):
        async with aiohttp.ClientSession() as client, client.get(url + "/server_info") as response:
            assert (await response.json())["disaggregated_params"] == {"ctx_info_endpoint": [url]}
        started.send_signal(number)
        assert await started.wait() == 0
        assert started.stdout is not None
        assert await started.stdout.read() == b""


async def test_the_end_of_its_standard_input_ends_it() -> None:
    """With --parent-pipe it does not outlive whoever started it, even with a request under way."""
    arguments = ("--engine", "openai", "--parent-pipe", "--token-delay", "60")
    async with process(*arguments) as (started, url), aiohttp.ClientSession() as client:
        asked = asyncio.ensure_future(client.post(url + PATHS["chat"], json=CHAT))
        running = 0
        while not running:
            async with client.get(url + "/_stub/state") as response:
                running = (await response.json())["running"]
        assert started.stdin is not None
        started.stdin.close()
        assert await started.wait() == 0
        with pytest.raises(aiohttp.ClientConnectionError):
            await asked


async def test_the_exit_fault_ends_the_process() -> None:
    """The fault `exit` takes the process down in mid-stream."""
    async with process("--engine", "openai", "--allow-fault-header") as (started, url):
        headers = {"x-stub-fault": '{"kind": "exit", "after": 2}'}
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.ClientPayloadError):
                async with client.post(url + PATHS["chat"], json={**CHAT, "stream": True}, headers=headers) as got:
                    await got.read()
        assert await started.wait() == 70


async def test_two_processes_are_a_pair() -> None:
    """A prefill and a decode process hand over as two in one process do, and a client's parameters kill the latter."""
    prefilled = ("--engine", "vllm", "--role", "prefill", "--hold-seconds", "60")
    async with process(*prefilled) as (_first, one), process("--engine", "vllm", "--role", "decode") as (second, two):
        async with aiohttp.ClientSession() as client:

            async def ask(url: str, **changes: object) -> tuple[int, Any]:
                async with client.post(url + PATHS["chat"], json={**CHAT, "max_tokens": 1, **changes}) as got:
                    return got.status, await got.json()

            _status, leg = await ask(one, kv_transfer_params={"do_remote_decode": True})
            status, answer = await ask(two, kv_transfer_params=leg["kv_transfer_params"])
            assert (status, texts(answer)) == (200, texts(leg))
            async with client.get(one + "/_stub/state") as response:
                state = await response.json()
            assert (state["handoffs"]["fetched"], state["violations"]) == (1, {})
            assert state["side_port"] == leg["kv_transfer_params"]["remote_port"]
            status, answer = await ask(two, kv_transfer_params={"do_remote_prefill": True})
            assert (status, answer["error"]["code"]) == (500, 500)
        assert await second.wait() == 70


def test_every_option_is_a_setting() -> None:
    """The command line and the settings name the same things with the same defaults."""
    options = vars(parser().parse_args(["--engine", "openai"]))
    assert options.pop("parent_pipe") is False
    assert StubSettings(**options) == StubSettings(engine="openai")


@pytest.mark.parametrize(("name", "role"), [("prefill", "context"), ("decode", "generation"), ("both", "both")])
def test_a_role_has_the_engines_names_too(name: str, role: str) -> None:
    """What engines call prefill and decode are the roles context and generation."""
    options = vars(parser().parse_args(["--engine", "vllm", "--role", name]))
    options.pop("parent_pipe")
    assert StubSettings(**options).role == role


@pytest.mark.parametrize(
    "arguments",
    [[], ["--engine", "none"], ["--engine", "openai", "--role", "judge"], ["--engine=openai", "--port=x"]],
)
def test_a_bad_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What the command line does not know is an error with a hint, not a traceback."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_bad_setting_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A value outside its range is told in one line."""
    assert main(["--engine", "openai", "--port", "70000"]) == 2
    assert capsys.readouterr().err == "stub: port: expected 0 to 65535, got 70000\n"
