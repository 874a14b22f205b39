"""The workers of the soak: two stubs of every role of four engines in this process, and what befalls them."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from attrs import define, field, frozen

from plugins.dispatch.embedded.stub import Stub, run_stub

ROLES: Final = ("context", "generation")

LEASE_SECONDS: Final = 5.0
CONTEXT_SECONDS: Final = 0.005
"""A worker that is done at once has done its part before it can hear that nobody wants it any more."""

REFUSAL_SECONDS: Final = 0.05
KEEP_ALIVE_SECONDS: Final = 60.0
"""Longer than the kernel keeps connections, so that it is the kernel that closes them."""


@frozen
class Model:
    """A model of the soak: its engine's stubs, and what the kernel's configuration says of the engine."""

    name: str
    stub: str
    engine: Mapping[str, Any]
    roles: tuple[str, ...] = ROLES


MODELS: Final = (
    Model("plain", "openai", {"type": "openai"}, ("both",)),
    Model("relayed", "vllm", {"type": "vllm", "lease_seconds": LEASE_SECONDS}),
    Model("paired", "sglang", {"type": "sglang"}),
    Model("handed", "trtllm", {"type": "trtllm", "body": "msgpack"}),
    Model("together", "trtllm", {"type": "trtllm", "schedule": "generation_first"}),
)

FAULTS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (
    *(("status", {"status": status}) for status in (400, 429, 500, 503)),
    *(("cut_mid_event", {"after": after}) for after in (0, 1, 4)),
    *(("stall", {"after": after}) for after in (0, 1, 4)),
    *(("error_event", {"after": after}) for after in (0, 4)),
    *((kind, {}) for kind in ("hang", "die_before_headers", "die_after_headers", "end_without_done")),
    *((kind, {}) for kind in ("garbage", "wrong_content_type", "no_handoff")),
    ("slow", {"seconds": 0.002}),
    ("refuse", {"seconds": REFUSAL_SECONDS}),
)

STRANDING: Final = ("status", "cut_mid_event", "die_before_headers", "die_after_headers", "garbage")
"""Faults of a generation worker after which nobody is left to fetch what the context worker holds for the request."""


@define(eq=False)
class Fleet:
    """All stubs by model and role. `stranded` is how many handoffs may have been lost for good, at the most."""

    stubs: Mapping[str, Mapping[str, Sequence[Stub]]]
    chance: random.Random
    stranded: int = 0
    faults: int = 0
    deaths: int = 0
    _restarts: set["asyncio.Task[None]"] = field(factory=set)

    @property
    def everyone(self) -> list[Stub]:
        """Every stub."""
        return [stub for roles in self.stubs.values() for stubs in roles.values() for stub in stubs]

    def strike(self, model: str) -> None:
        """Have a worker of a model commit a fault at its next request, or now."""
        role = self.chance.choice(list(self.stubs[model]))
        stub = self.chance.choice(self.stubs[model][role])
        kind, fields = self.chance.choice(FAULTS)
        if role == "generation" and kind in STRANDING:
            self.stranded += 1
        self.faults += 1
        stub.add_fault(kind, **fields)

    def kill(self, model: str) -> None:
        """End a worker as a killed process ends, and start it again."""
        role = self.chance.choice(list(self.stubs[model]))
        stub = self.chance.choice(self.stubs[model][role])
        if role == "generation":
            self.stranded += stub.state().connections_open
        self.deaths += 1
        stub.kill()
        task = asyncio.get_running_loop().create_task(stub.restart())
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def calm(self) -> None:
        """Let every worker be well from now on."""
        for stub in self.everyone:
            stub.clear_faults()

    def problems(self, given_up: int) -> list[str]:
        """What is left at the workers, or should not have come to them.

        Of `given_up` context legs each one may have been done in the moment in which it was told to stop.
        """
        found = []
        for stub in self.everyone:
            state, name = stub.state(), f"{stub.settings.engine} {stub.settings.role}"
            if state.violations:
                found.append(f"{name}: {state.violations}: {state.violation_notes[-1]}")
            counts = {what: getattr(state, what) for what in ("running", "pairs", "held_blocks", "connections_open")}
            found += [f"{name}: {what} is {count}" for what, count in counts.items() if count]
        lost = {stub.settings.model: 0 for stub in self.everyone}
        for stub in self.everyone:
            lost[stub.settings.model] += stub.state().handoffs.expired
        if sum(lost.values()) > self.stranded + given_up:
            excuse = f"{self.stranded} faults and {given_up} context legs that were given up"
            found.append(f"handoffs that nobody fetched, more than {excuse} explain: {lost}")
        return found


@asynccontextmanager
async def run_fleet(seed: int) -> AsyncIterator[Fleet]:
    """Run all stubs."""
    async with AsyncExitStack() as stack:
        stubs: dict[str, dict[str, list[Stub]]] = {}
        for model in MODELS:
            for role in model.roles * 2:
                stub = await stack.enter_async_context(
                    run_stub(
                        model.stub,
                        role=role,
                        model=model.name,
                        hold_seconds=LEASE_SECONDS,
                        failure_seconds=0.0,
                        keep_alive=KEEP_ALIVE_SECONDS,
                        token_delay=CONTEXT_SECONDS if role == "context" else 0.0,
                    )
                )
                stubs.setdefault(model.name, {}).setdefault(role, []).append(stub)
        yield Fleet(stubs, random.Random(seed))
