"""Where the two halves of an SGLang request meet: a bootstrap address and a room for each of its sequences."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.sglang_fields import LARGEST_ROOM, is_room

DEFAULT_PORT: Final = 8_998

_OVERRIDES: Final = {
    "x-override-bootstrap-host": "bootstrap_host",
    "x-override-bootstrap-port": "bootstrap_port",
    "x-override-bootstrap-room": "bootstrap_room",
    "x-override-rid": "rid",
}
_NUMBERS: Final = frozenset(("bootstrap_port", "bootstrap_room"))

Body = Mapping[str, Any]


class RoomError(ValueError):
    """The rooms of a request do not fit its sequences."""


@frozen
class Room:
    """Where one sequence meets its other half; without a host it can only wait."""

    number: int
    host: str | None = None
    port: int = DEFAULT_PORT


def overridden(body: Body, headers: Mapping[str, str]) -> Body:
    """Put the values of override headers in place of the body's; raises `RoomError` for a bad one."""
    changed = dict(body)
    for name, field in _OVERRIDES.items():
        text = headers.get(name)
        if text is None:
            continue
        if field in _NUMBERS:
            if not (text.isascii() and text.isdigit() and is_room(int(text))):
                raise RoomError(f"{name}: expected a number, got {text[:40]!r}")
            changed[field] = int(text)
        else:
            changed[field] = text
    return changed


def read_rooms(body: Body, job: Job, port: int) -> tuple[Room, ...] | None:
    """Give the room of each sequence, or None for a request without any.

    One room for many sequences stands for the numbers that follow it; a list has one for each prompt, and is
    repeated for each further choice of them. Raises `RoomError` for a list of another length.
    """
    rooms = body.get("bootstrap_room")
    if rooms is None:
        return None
    numbers = _spread(rooms, job) if isinstance(rooms, list) else range(rooms, rooms + job.sequences)
    if any(number is None or number > LARGEST_ROOM for number in numbers):
        raise RoomError("bootstrap_room: expected a room for each sequence, from 0 to 2^63 - 1")
    hosts = _each(body.get("bootstrap_host"), job)
    ports = _each(body.get("bootstrap_port"), job)
    return tuple(
        Room(number, host, port if given is None else given)
        for number, host, given in zip(numbers, hosts, ports, strict=True)
    )


def _spread(rooms: list[Any], job: Job) -> list[Any]:
    if len(job.prompts) == 1 and len(rooms) == job.choices:
        return rooms
    if len(rooms) != len(job.prompts):
        raise RoomError(f"bootstrap_room: expected {len(job.prompts)} rooms, got {len(rooms)}")
    return rooms * job.choices


def _each(value: object, job: Job) -> list[Any]:
    if not isinstance(value, list):
        return [value] * job.sequences
    if not value or job.sequences % len(value):
        raise RoomError(f"expected {len(job.prompts)} bootstrap addresses, got {len(value)}")
    return value * (job.sequences // len(value))
