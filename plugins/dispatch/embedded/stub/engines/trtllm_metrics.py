"""The times that a TensorRT-LLM worker tells of itself: its clock, and how long a request took."""

import time
from collections.abc import Mapping
from typing import Final

import orjson
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.engines.answering import Answer

CLOCK_HEADER: Final = "X-TRTLLM-Clock-Sync"
METRICS_HEADER: Final = "X-TRTLLM-return-metrics"
METRICS_EVENT: Final = "trtllm.perf_metrics"


@define(eq=False)
class Clock:
    """A steady clock that is `skew` seconds ahead of the machine's until somebody sets it right."""

    skew: float = 0.0
    offset: float = 0.0

    def now(self) -> float:
        """Tell the time in seconds."""
        return time.monotonic() + self.skew + self.offset


@define(eq=False)
class Meter:
    """The times of one request, told in the headers of a whole answer or in an event after a stream."""

    call: Call
    clock: Clock
    answer: Answer | None = None
    loaded: float | None = None
    arrival: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.arrival = self.clock.now()

    def headers(self) -> dict[str, str]:
        """Give the headers of an answer that begins now."""
        told = f"receive;ts={self.arrival:.9f}, transmit;ts={self.clock.now():.9f}"
        whole = self.answer is not None and not self.answer.job.stream
        return {CLOCK_HEADER: told, **(self._metrics() if whole else {})}

    def trailer(self) -> bytes:
        """Give the event that comes after the end marker of a stream, if it was asked for."""
        metrics = self._metrics()
        return f"event: {METRICS_EVENT}\ndata: ".encode() + orjson.dumps(metrics) + b"\n\n" if metrics else b""

    def _metrics(self) -> Mapping[str, str]:
        if self.call.received.header(METRICS_HEADER) != "1" or self.answer is None:
            return {}
        end = self.clock.now()
        # A first token that was noted on the machine's own clock is moved to the worker's.
        first = (self.answer.first_token_at or 0.0) + self.clock.skew + self.clock.offset
        durations = {"queue": 0.0, "ttft": first - self.arrival, "e2e": end - self.arrival}
        if self.loaded is not None:
            durations["kv_transfer"] = self.loaded
        timing = ", ".join(f"server_{name};dur={seconds * 1e3:.6f}" for name, seconds in durations.items())
        return {
            "Server-Timing": timing,
            "X-TRTLLM-Start-End-Time": f"server-start;ts={self.arrival:.9f}, server-end;ts={end:.9f}",
            "X-TRTLLM-Step-Metrics": f"server-step-0-forward;dur={(end - self.arrival) * 1e3:.6f}",
        }
