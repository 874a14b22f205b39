"""The mock workers of the peers: what they tell of themselves, and what came to them, leg by leg."""

import http.client
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import frozen

from bench.bodies import ENGINE_ID, ONE, PATH, SGLANG, VLLM, write_rules
from bench.cases import PAUSES
from bench.gateways import Pools
from bench.processes import BenchError

RENDER: Final = f"{PATH}/render"
"""Where workers of vLLM make tokens of a prompt; vllm-router asks each of them when it looks for a prefix."""

SETTLE_SECONDS: Final = 3.0

_PROMPT_TOKENS: Final = 120


def write_peer_rules(folder: Path, model: str, tokens: int) -> Path:
    """Write the rules of workers of one model, which tell of themselves what the routers ask for."""
    rules = write_rules(folder, tokens, PAUSES)
    lines = []
    for index, (path, facts) in enumerate(_facts(model).items()):
        file = folder / f"peers-{index}"
        file.write_bytes(orjson.dumps(facts))
        lines.append(f"answer {path} {404 if facts is None else 200} {file}\n")
    rules.write_text("".join(lines) + rules.read_text())
    return rules


def _facts(model: str) -> dict[str, Any]:
    """What is said on each path; None: there is no such path."""
    served = {"id": model, "object": "model", "created": 0, "owned_by": SGLANG if model == SGLANG else VLLM}
    tokens = {"request_id": "chatcmpl-0", "token_ids": list(range(1000, 1000 + _PROMPT_TOKENS)), "model": model}
    info = {"served_model_name": model, "is_generation": True, "tp_size": 1, "dp_size": 1}
    return {
        "/v1/models": {"object": "list", "data": [served]},
        "/version": None if model == SGLANG else {"version": "0.32.0"},
        "/server_info": info,
        "/get_server_info": info,
        "/model_info": info,
        "/get_model_info": info,
        RENDER: None if model == SGLANG else tokens,
    }


@frozen
class Ledger:
    """What came to the workers of a set-up, by their own count; a worker counts only what its rules take."""

    rules: Path
    pools: Pools

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The workers of each role that there is."""
        roles = {"one": self.pools.one, "context": self.pools.context, "generation": self.pools.generation}
        return {role: urls for role, urls in roles.items() if urls}

    def counts(self) -> dict[str, int]:
        """How many requests each role was sent and answered, since it was started."""
        kinds = [_is_served(words.split()) for words in self.rules.read_text().splitlines()]
        return {role: sum(_count(url, kinds) for url in urls) for role, urls in self.roles.items()}

    def check(self, asked: int, before: Mapping[str, int]) -> None:
        """Hold that since `before` each role was sent as many requests as were asked; some may still be on their way.

        Raises:
            BenchError: it was not.
        """
        wanted = {role: count + asked for role, count in before.items()}
        deadline = time.monotonic() + SETTLE_SECONDS
        while (counts := self.counts()) != wanted:
            if time.monotonic() > deadline:
                came = ", ".join(f"{count - before[role]} for the role {role!r}" for role, count in counts.items())
                raise BenchError(f"{asked} requests became {came}")
            time.sleep(0.05)

    def check_legs(self, request: bytes) -> None:
        """Hold that a request, the last one, came whole to a worker of each role, with what its engine needs.

        Raises:
            BenchError: it did not.
        """
        asked = orjson.loads(request)
        legs = {role: _find(asked, urls) for role, urls in self.roles.items()}
        missing = [role for role, leg in legs.items() if leg is None]
        fault = f"nothing for the role {missing[0]!r}" if missing else _find_fault(asked["model"], legs)
        if fault is not None:
            raise BenchError(f"what came to the workers is not the request: {fault}")


def _count(url: str, kinds: Sequence[bool]) -> int:
    counts = _tell(url)[0].split()
    return sum(int(count) for count, served in zip(counts, kinds, strict=True) if served)


def _find(asked: Mapping[str, Any], urls: Sequence[str]) -> dict[str, Any] | None:
    """What came of a request to one of these workers."""
    for url in urls:
        body = _tell(url)[1]
        if body and (leg := orjson.loads(body))["messages"] == asked["messages"]:
            return dict(leg)
    return None


def _tell(url: str) -> tuple[bytes, bytes]:
    """What came to a worker: how often each rule was taken, and the last body."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10.0)
    try:
        connection.request("GET", "/counts")
        counts, _, body = connection.getresponse().read().partition(b"\n")
    finally:
        connection.close()
    return counts, body


def _is_served(words: Sequence[str]) -> bool:
    """Whether a rule is that of a good answer to chat completions."""
    return words[1] == PATH and (words[0] == "stream" or words[2] == "200")


def _find_fault(model: str, legs: Mapping[str, Any]) -> str | None:
    """What is wrong with the legs of a request."""
    if model == ONE:
        return None
    context, generation = legs["context"], legs["generation"]
    if model == SGLANG:
        rooms = [leg.get("bootstrap_room") for leg in (context, generation)]
        return None if isinstance(rooms[0], int) and rooms[0] == rooms[1] else f"rooms {rooms}"
    if model == VLLM:
        given, taken = (leg.get("kv_transfer_params") or {} for leg in (context, generation))
        if context.get("max_tokens") != 1 or given.get("do_remote_decode") is not True:
            return "the context worker is to make more than one token, or to keep nothing"
        return None if taken.get("remote_engine_id") == ENGINE_ID else "the generation worker has no handoff"
    kinds = [(leg.get("disaggregated_params") or {}).get("request_type") for leg in (context, generation)]
    return None if kinds == ["context_only", "generation_only"] else f"request types {kinds}"
