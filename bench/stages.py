"""The stages of a request: to which of them a file of code belongs."""

from functools import cache
from pathlib import Path
from typing import Final

from plugins.order import STANDARD_ORDER

LOOP: Final = "event loop"
"""What no stage has called: the loop itself, timers, and the system calls that it makes."""

UVICORN: Final = "uvicorn"
CONNECTION: Final = "connection"
ENTRY: Final = "kernel entry"
CHAIN: Final = "chain"
REPLY: Final = "reply"
TRANSPORT: Final = "transport"
ENGINE: Final = "engine"
POLICY: Final = "policy"
LOG_LINE: Final = "log line"
GARBAGE: Final = "garbage collection"

_PLUGINS: Final = tuple(line.name for line in STANDARD_ORDER)

STAGES: Final = (
    LOOP,
    UVICORN,
    CONNECTION,
    ENTRY,
    CHAIN,
    *_PLUGINS,
    POLICY,
    ENGINE,
    TRANSPORT,
    REPLY,
    LOG_LINE,
    GARBAGE,
)
"""All, in the order in which a request goes through them."""

_ROOT: Final = Path(__file__).parents[1]
_PLACES: Final = {
    "kernel/reply": REPLY,
    "kernel/wire": REPLY,
    "kernel/chain": CHAIN,
    "kernel/race": CHAIN,
    "kernel/order": CHAIN,
    "kernel": ENTRY,
    "plugins/host/logs": LOG_LINE,
    "plugins/host": CONNECTION,
    "plugins/hooks": CHAIN,
    "plugins/dispatch/transports": TRANSPORT,
    "plugins/dispatch/engines": ENGINE,
    "plugins/dispatch/policies": POLICY,
    "plugins/dispatch/policy": POLICY,
    **{f"plugins/{name}": name for name in _PLUGINS},
}
_LIBRARIES: Final = {"uvicorn": UVICORN, "structlog": LOG_LINE}


@cache
def stage_of(filename: str) -> str | None:
    """The stage of a file of code; none has what is shared, and counts for the stage that calls it."""
    path = Path(filename)
    if not path.is_relative_to(_ROOT) or "site-packages" in path.parts:
        return next((stage for name, stage in _LIBRARIES.items() if f"/site-packages/{name}/" in filename), None)
    words = path.relative_to(_ROOT).with_suffix("").parts
    places = ("/".join(words[:length]) for length in range(len(words), 0, -1))
    return next((_PLACES[place] for place in places if place in _PLACES), None)
