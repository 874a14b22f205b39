"""The addresses of workers' streams of KV-cache events: as they are configured, or as a worker names them."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from attrs import Attribute, frozen

from plugins.dispatch.policies.kv_wire import RANKS, WireError
from plugins.dispatch.worker import Worker

_ADDRESS: Final = re.compile(r"tcp://(\*|\{host\}|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HERE: Final = frozenset(("*", "{host}", "0.0.0.0", "[::]"))  # noqa: S104  # replaced, not bound


@frozen
class Addresses:
    """Where one rank of a worker sends its events, and where it gives old ones, if it does."""

    live: str
    replay: str | None = None


def check_address(_instance: object, attribute: "Attribute[Any]", value: str) -> None:
    """An attrs validator: a ZeroMQ address over TCP, in which `{host}` may stand for the worker's."""
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f"{attribute.name} is tcp://HOST:PORT, where HOST may be {{host}}, got {value!r:.80}")


def address_of(template: str, worker: Worker, rank: int = 0) -> str:
    """The address for one rank of a worker: at its host, one port higher for each rank.

    Raises:
        WireError: there is none.
    """
    match = _ADDRESS.fullmatch(template)
    if match is None or not 0 < int(match[2]) + rank < 65536:
        raise WireError(f"no address of events: {template!r:.80}")
    host = match[1]
    if host in _HERE:
        host = urlsplit(worker.url).hostname or ""
        host = f"[{host}]" if ":" in host else host
    return f"tcp://{host}:{int(match[2]) + rank}"


def read_addresses(body: bytes, worker: Worker) -> tuple[Addresses, ...]:
    """What a worker answers that is asked where its streams are: a list of ranks, or a mapping by rank.

    Raises:
        WireError: it names none.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise WireError("no JSON with addresses of events") from None
    entries = list(data.values()) if isinstance(data, dict) else data
    if not isinstance(entries, list) or not 0 < len(entries) <= RANKS:
        raise WireError("no addresses of events")
    return tuple(_read_entry(entry, worker) for entry in entries)


def _read_entry(entry: Any, worker: Worker) -> Addresses:
    live = entry.get("endpoint") if isinstance(entry, dict) else None
    if not isinstance(live, str):
        raise WireError("no address of events")
    replay = entry.get("replay_endpoint")
    return Addresses(
        address_of(live, worker), address_of(replay, worker) if isinstance(replay, str) and replay else None
    )
