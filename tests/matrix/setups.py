"""The engines of the fault matrix: which stub workers there are, and what the kernel is told of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from plugins.dispatch.embedded.stub import Stub

MODEL: Final = "m"
ADMIN_KEY: Final = "MATRIX_ADMIN_KEY"
"""The environment variable with the key of SGLang's workers."""

SINGLE: Final = "single"
RELAY: Final = "relay"
PAIR: Final = "pair"

APIS: Final = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
OPENAI: Final = ("chat", "completions")
SERVED: Final = ("chat_completions", "completions", "responses", "messages")
"""The APIs that a whole vLLM worker answers itself; where one is not, it is translated to a chat."""

TRANSPORTS: Final = ("lean", "aiohttp")

WORDS: Final = " ".join(f"word{number}" for number in range(70))
"""A prompt of three KV blocks."""

FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "chat": {"messages": [{"role": "user", "content": WORDS}]},
    "completions": {"prompt": WORDS},
    "responses": {"input": WORDS},
    "messages": {"messages": [{"role": "user", "content": WORDS}]},
}


@frozen
class Setup:
    """An engine and its workers. `family` says how legs follow each other; `fields` are settings of its stubs.

    `apis` are those over which it is asked.
    """

    name: str
    family: str
    stub: str
    engine: Mapping[str, Any]
    fields: Mapping[str, Any] = field(factory=dict)
    apis: tuple[str, ...] = OPENAI

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the stubs."""
        return ("both",) if self.family == SINGLE else ("context", "generation")


SETUPS: Final = {
    setup.name: setup
    for setup in (
        Setup("openai", SINGLE, "openai", {"type": "openai"}, apis=tuple(APIS)),
        Setup("vllm alone", SINGLE, "vllm", {"type": "openai", "apis": list(SERVED)}, apis=tuple(APIS)),
        Setup("trtllm", RELAY, "trtllm", {"type": "trtllm", "body": "msgpack"}, apis=tuple(APIS)),
        Setup("nixl", RELAY, "vllm", {"type": "vllm"}, apis=tuple(APIS)),
        Setup("nixl push", RELAY, "vllm", {"type": "vllm", "connector": "nixl_push"}, {"connector": "nixl-push"}),
        Setup("trtllm first", PAIR, "trtllm", {"type": "trtllm", "schedule": "generation_first"}),
        Setup("mooncake", PAIR, "vllm", {"type": "vllm", "connector": "mooncake"}, {"connector": "mooncake"}),
        Setup(
            "sglang",
            PAIR,
            "sglang",
            {"type": "sglang", "admin_key": {"env": ADMIN_KEY}},
            {"admin_key": "secret"},
            tuple(APIS),
        ),
    )
}


@frozen
class Limits:
    """How long the kernel waits, in seconds; the patient ones never strike in a test."""

    read: float = 60.0
    total: float = 60.0
    connect: float = 60.0
    grace: float = 60.0


def configuration(setup: Setup, transport: str, limits: Limits, stubs: Mapping[str, Sequence[Stub]]) -> str:
    """The kernel's configuration; JSON, which YAML takes as it is."""
    pool: dict[str, Any] = {"model": MODEL, "engine": dict(setup.engine), "transport": transport}
    if setup.family == SINGLE:
        pool["workers"] = [stub.url for stub in stubs["both"]]
    else:
        places = [{"url": stub.url, "bootstrap_port": stub.side_port} for stub in stubs["context"]]
        pool["context"] = {"workers": places}
        pool["generation"] = {"workers": [stub.url for stub in stubs["generation"]]}
    dispatch = {
        # probes at the start and after a fault only
        "health": {"interval_seconds": 60},
        "connect_timeout_seconds": limits.connect,
        "read_timeout_seconds": limits.read,
        "total_timeout_seconds": limits.total,
        "pools": [pool],
    }
    return json.dumps({"plugins": {"dispatch": {"config": dispatch}}})
