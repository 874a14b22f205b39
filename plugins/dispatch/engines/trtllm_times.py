"""What TensorRT-LLM's workers tell of a request's times: in headers, or in an event behind a stream."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from structlog.stdlib import get_logger

from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.worker import Role
from plugins.slots import LegTimes, Performance

CLOCK_HEADER: Final = "x-trtllm-clock-sync"
"""Under which workers tell when a request came and its answer went, by their clocks. Releases may differ in it."""

METRICS_HEADERS: Final = {"x-trtllm-return-metrics": "1"}
"""Asks a worker for the times of a request."""

_TOLD: Final = ("server-timing", "x-trtllm-start-end-time", "x-trtllm-step-metrics", "x-trtllm-ctx-chunk-metrics")
_CLOCK: Final = re.compile(r"receive;ts=([0-9.eE+-]{1,40})\s*,\s*transmit;ts=([0-9.eE+-]{1,40})", re.ASCII)

log = get_logger()


def read_headers(times: LegTimes, headers: Mapping[str, str], clock: str, received: float) -> None:
    """Keep what the head of an answer tells, which came in at `received`."""
    times.told = {name: headers[name] for name in _TOLD if name in headers}
    times.clock_ahead = clock_ahead(headers.get(clock, ""), times.sent, received)


def read_event(request: Request, data: bytes) -> None:
    """Keep what the event behind a stream tells, if anybody wants it; one that makes no sense is left out."""
    times = None if request.performance is None else request.performance.legs.get(Role.GENERATION)
    if times is None:
        return
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        log.warning("performance.malformed", worker=times.worker)
        return
    named = {name.lower(): text for name, text in value.items() if isinstance(text, str)}
    times.told = {name: named[name] for name in _TOLD if name in named}


def clock_ahead(told: str, sent: float, received: float) -> float:
    """How far a worker's clock is ahead of this process's, in seconds; 0 where it does not say.

    As in NTP: both ways of an exchange are taken to be equally long. A worker cannot have had a request for longer
    than it was away.
    """
    found = _CLOCK.fullmatch(told.strip())
    if found is None:
        return 0.0
    try:
        came, went = float(found[1]), float(found[2])
    except ValueError:
        return 0.0
    if not (math.isfinite(came) and math.isfinite(went) and 0 <= went - came <= received - sent):
        return 0.0
    return ((came - sent) + (went - received)) / 2


def note_ids(performance: Performance, handoff: Handoff) -> None:
    """Keep under which ids a context worker's part goes on."""
    params = handoff.fields.get("disaggregated_params") or handoff.fields.get(Role.GENERATION) or {}
    performance.handoff_id = params.get("disagg_request_id")
    if Role.CONTEXT in performance.legs:
        performance.legs[Role.CONTEXT].request_id = params.get("ctx_request_id")
