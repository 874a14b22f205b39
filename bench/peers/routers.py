"""The peers: how each is started in front of the workers of a set-up, with the settings that it is shipped with."""

import http.client
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from attrs import frozen

from bench.bodies import ONE, SGLANG, VLLM
from bench.cases import Setup
from bench.gateways import Gateway, Pools
from bench.peers.environments import Environment
from bench.processes import START_SECONDS, BenchError, Cores, fetch, free_port, running, wait_until_ready

BOOTSTRAP_PORT: Final = 8998
"""Where context workers of SGLang are told to be found, which nobody does here."""

_VARIABLES: Final = ("NO_PROXY=*", "HF_ENDPOINT=http://127.0.0.1:9")
"""Workers are asked directly, and nobody outside of this machine for a tokenizer."""

_POLICIES: Final = {None: "round_robin", "round_robin": "round_robin", "prefix": "cache_aware"}
"""The name that a policy of the kernel has in all three; None is the kernel's own choice."""


@frozen
class Peer:
    """One peer: the start of its command line, which models it serves, and whether workers are told to it later.

    `pairs` is the option that makes it send a request over two workers.
    """

    name: str
    words: tuple[str, ...]
    serves: tuple[str, ...]
    pairs: str
    introduces: tuple[str, ...] = ()

    @property
    def environment(self) -> Environment:
        """Where it is installed."""
        return Environment(self.name)

    def command(self, setup: Setup, pools: Pools, port: int) -> list[str]:
        """Its command line: addresses, workers and the policy, and nothing else."""
        program, *words = self.words
        options: dict[str, Any] = {"host": "127.0.0.1", "port": port, "policy": _POLICIES[setup.policy]}
        options |= {"prometheus-host": "127.0.0.1", "prometheus-port": free_port()}
        command = ["env", *_VARIABLES, self.environment.program(program), *words]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if not setup.pairs:
            return [*command, "--worker-urls", *pools.one]
        command.append(self.pairs)
        if setup.model in self.introduces:
            return command
        for url in pools.context:
            command += ["--prefill", url, *([str(BOOTSTRAP_PORT)] if setup.model == SGLANG else [])]
        return command + [word for url in pools.generation for word in ("--decode", url)]

    def start(self, stack: ExitStack, setup: Setup, pools: Pools, cores: Cores) -> Gateway:
        """Start it, with its log going nowhere, and wait until all workers are known to be well.

        Raises:
            BenchError: it is not installed, has ended, or does not come to that.
        """
        port = free_port()
        command = self.command(setup, pools, port)
        process = stack.enter_context(running(command, cores.gateway, quiet=True))
        if setup.pairs and setup.model in self.introduces:
            wait_until_ready(port, self.name, process, None)
            _introduce(port, pools)
        workers = pools.one + pools.context + pools.generation
        if not _come_to_serve(port, len(workers), process):
            raise BenchError(f"{self.name} does not serve {len(workers)} workers; started as: {' '.join(command)}")
        return Gateway((process.pid,), port)


PEERS: Final = (
    # no option says which connector workers have, without which it relays no handoff; its API for workers does
    Peer("smg", ("smg", "launch"), (ONE, VLLM, SGLANG), "--pd-disaggregation", introduces=(VLLM,)),
    Peer("vllm-router", ("vllm-router",), (ONE, VLLM), "--vllm-pd-disaggregation"),
    Peer(
        "sglang-router",
        ("python", "-m", "sglang_router.launch_router"),
        (ONE, SGLANG),
        "--pd-disaggregation",
    ),
)


def _introduce(port: int, pools: Pools) -> None:
    """Tell smg of workers of vLLM, and which connector they have."""
    roles = (("prefill", "kv_producer", pools.context), ("decode", "kv_consumer", pools.generation))
    for kind, role, urls in roles:
        for url in urls:
            facts = {"url": url, "worker_type": kind, "kv_connector": "NixlConnector", "kv_role": role}
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
            connection.request("POST", "/workers", json.dumps(facts), {"content-type": "application/json"})
            status = connection.getresponse().status
            connection.close()
            if status >= 300:
                raise BenchError(f"smg does not take a worker: status {status}")


def _come_to_serve(port: int, workers: int, process: "subprocess.Popen[str]") -> bool:
    """Whether a peer says within `START_SECONDS` that it is ready, with so many workers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        head, _, body = fetch(port, "/readiness").partition(b"\r\n\r\n")
        if b" 200 " in head.partition(b"\r\n")[0] and _count_healthy(json.loads(body)) in (workers, None):
            return True
        time.sleep(0.05)
    return False


def _count_healthy(said: Mapping[str, Any]) -> int | None:
    """How many workers are well, if it is said."""
    if "healthy_workers" in said:
        return int(said["healthy_workers"])
    roles: Sequence[Mapping[str, int]] = [said[role] for role in ("prefill", "decode") if role in said]
    return sum(role["healthy"] for role in roles) if roles else None
