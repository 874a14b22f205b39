"""The KV-cache events of TensorRT-LLM's workers, and what a worker says of its blocks: read, and judged."""

from typing import Any, Final, Literal, TypeAlias

import orjson
from attrs import define, field, frozen

from plugins.dispatch.policies.kv_index import Holding
from plugins.dispatch.policies.kv_wire import BLOCK_LIMIT, WireError

HASHES: Final = frozenset(("v1", "v1_block_key", "auto"))
"""What the one algorithm is called of which the contents are known."""

Verdict: TypeAlias = Literal["follow", "track", "refuse"]
"""Whether a worker's events are of use, or only what it was sent, or whether it must not be sent anything."""


@frozen
class ServerInfo:
    """What a worker says of its blocks; None of what it does not say."""

    tokens_per_block: int | None = None
    hash_algorithm: str | None = None


def read_info(body: bytes) -> ServerInfo:
    """Read the answer of `/server_info`.

    Raises:
        WireError: it is none.
    """
    data = _load(body)
    if not isinstance(data, dict):
        raise WireError("no JSON object of a worker's settings")
    size, algorithm = data.get("tokens_per_block"), data.get("kv_cache_hash_algo")
    if size is not None and (type(size) is not int or not 0 < size <= BLOCK_LIMIT):
        raise WireError("no size of blocks")
    return ServerInfo(size, algorithm if isinstance(algorithm, str) else None)


def judge(info: ServerInfo, wanted: int | None) -> tuple[Verdict, str]:
    """What to do with a worker, and why, if blocks of `wanted` tokens are configured, or with None of any size."""
    if info.hash_algorithm is not None and info.hash_algorithm not in HASHES:
        return "refuse", f"its hash algorithm {info.hash_algorithm!r:.40} is not known"
    size = info.tokens_per_block
    if wanted is None or size is None or size == wanted:
        return "follow", "" if info.hash_algorithm is not None else "it does not name its hash algorithm, v1 is assumed"
    if wanted % size == 0 or size % wanted == 0:
        return "track", f"its blocks have {size} tokens, {wanted} are configured"
    return "refuse", f"its blocks have {size} tokens, which do not fit the {wanted} that are configured"


@define(eq=False)
class PolledLedger:
    """Enters polled events into what is known of one worker. `bad` counts what was not as it should be.

    `stored` and `removed` are the blocks of the last answer.
    """

    holding: Holding
    bad: int = field(default=0, init=False)
    stored: list[int] = field(factory=list, init=False)
    removed: list[int] = field(factory=list, init=False)
    _last: int = field(default=-1, init=False)

    def enter(self, body: bytes) -> None:
        """Enter an answer of `/kv_cache_events`.

        Several frontends share the events of a worker, so that numbers that are missing mean nothing.

        Raises:
            WireError: it is none.
        """
        self.stored, self.removed = [], []
        events = _load(body)
        if not isinstance(events, list):
            raise WireError("no JSON list of events")
        for event in events:
            try:
                self._enter(event)
            except WireError:
                self.bad += 1

    def _enter(self, event: Any) -> None:
        if not isinstance(event, dict):
            raise WireError("no event")
        number = event.get("event_id")
        if type(number) is int:
            if number <= self._last:
                self.holding.clear()  # it counts anew: it was restarted
            self._last = number
        algorithm = event.get("hash_algo")
        if algorithm is not None and algorithm not in HASHES:
            raise WireError("an event of another hash algorithm")
        data = event.get("data", event)
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            raise WireError("an event of no type")
        if data["type"] == "stored":
            for block in _list(data.get("blocks")):
                name = _hash(block.get("block_hash") if isinstance(block, dict) else None)
                self.holding.store(name, name)
                self.stored.append(name)
        elif data["type"] == "removed":
            for block in _list(data.get("block_hashes")):
                name = _hash(block)
                self.holding.remove(name)
                self.removed.append(name)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise WireError("an event without blocks")
    return value


def _hash(value: Any) -> int:
    if type(value) is not int:
        raise WireError("a hash of a block is a number")
    return value & 0xFFFFFFFFFFFFFFFF


def _load(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise WireError("no JSON") from None
