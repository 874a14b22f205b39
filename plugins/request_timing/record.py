"""What is told of the times of one request: to its client in headers, and to the operator in a record."""

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.request_timing.items import CHUNKS, HEADERS, START_END, STEPS, TIMING, Item, read_items, write_items
from plugins.slots import LegTimes, Performance, Timing

BUDGET: Final = 80 * 1024
"""Bytes of all headers, as their names and values and four more each: clients refuse more."""

PHASES: Final = {"context": "ctx", "generation": "gen"}

_STEP: Final = re.compile(r"-step-(\d{1,9})-")

log = get_logger()


@define(eq=False)
class Account:
    """The times of one request that was answered well, the last byte of its answer at `ended`."""

    request_id: str
    timing: Timing
    performance: Performance
    ended: float
    _items: dict[str, dict[str, list[Item]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._items = {
            phase: {name: _items_of(leg, name, phase) for name in HEADERS}
            for role, phase in PHASES.items()
            if (leg := self.performance.legs.get(role)) is not None
        }

    def headers(self) -> dict[str, str]:
        """The headers for the client: the workers' own and those of this process; all that there is room for."""
        found = {}
        for name in HEADERS:
            items = [item for phase in self._items.values() for item in phase[name]]
            if value := write_items([*items, *self._own(name)]):
                found[name] = value
        for kept in (HEADERS, (TIMING, START_END), ()):
            cut = {name: value for name, value in found.items() if name in kept}
            if _size(cut) <= BUDGET:
                break
            log.warning("performance.headers_cut", request_id=self.request_id, bytes=_size(cut))
        return cut

    def record(self) -> dict[str, Any]:
        """Everything, by phase."""
        phases: dict[str, Any] = {"disagg": {**self._servers(), "timing_metrics": self._stations()}}
        for role, phase in PHASES.items():
            if phase in self._items:
                headers = {name: write_items(items) for name, items in self._items[phase].items() if items}
                phases[phase] = {
                    "server": self.performance.legs[role].worker,
                    "request_id": self._id_of(role),
                    "timing_metrics": self._rebuilt(phase),
                    "metrics_headers": headers,
                }
        record = {"schema_version": 1, "request_id": self.request_id, "status": "complete", "phases": phases}
        return {**record, **self._handoff_id()}

    def line(self) -> dict[str, Any]:
        """The same in the shape of the file that TensorRT-LLM's frontend writes."""
        stations = self._stations()
        told = ("server_arrival_time", "ctx_dispatch_time", "server_first_token_time")
        line: dict[str, Any] = self._servers()
        line.update((f"disagg_{name}", stations[name]) for name in told)
        line["status"] = "complete"
        for role, phase in PHASES.items():
            if phase in self._items:
                line[f"{phase}_perf_metrics"] = self._perf_metrics(role, phase)
        return {**line, **self._handoff_id()}

    def _perf_metrics(self, role: str, phase: str) -> dict[str, Any]:
        steps, chunks = self._items[phase][STEPS], self._items[phase][CHUNKS]
        iterations = [int(found[1]) for item in steps if (found := _STEP.search(item.name))]
        metrics: dict[str, Any] = {"timing_metrics": self._rebuilt(phase)}
        if iterations:
            metrics |= {"first_iter": min(iterations), "last_iter": max(iterations)}
        told: dict[str, Any] = {"request_id": self._id_of(role), "perf_metrics": metrics}
        if role == "generation" and (context := self._id_of("context")) is not None:
            told["ctx_request_id"] = context
        if steps or chunks:
            parts = {"step_metrics": steps, "ctx_chunk_metrics": chunks}
            told["time_breakdown_metrics"] = {
                name: {item.name: item.value for item in items} for name, items in parts.items() if items
            }
        return told

    def _rebuilt(self, phase: str) -> dict[str, float]:
        """The stations of a worker, out of when it began and how long it took."""
        values = {item.name: item.value for name in (TIMING, START_END) for item in self._items[phase][name]}
        start, end = values.get(f"{phase}-start"), values.get(f"{phase}-end")
        rebuilt = {"arrival_time": start, "last_token_time": end}
        for name, part in (("first_scheduled_time", "queue"), ("first_token_time", "ttft")):
            if start is not None and (taken := values.get(f"{phase}_{part}")) is not None:
                rebuilt[name] = start + taken / 1000
        return {name: value for name, value in rebuilt.items() if value is not None}

    def _own(self, name: str) -> list[Item]:
        arrived = self.timing.arrived
        if name == START_END:
            return [Item("disagg-start", arrived, stamp=True), Item("disagg-end", self.ended, stamp=True)]
        if name != TIMING:
            return []
        taken = (("disagg_queue", self._dispatched()), ("disagg_ttft", self._first_token()))
        return [Item(part, max(at - arrived, 0) * 1000) for part, at in taken if at is not None]

    def _stations(self) -> dict[str, float | None]:
        return {
            "arrival_time": self.timing.arrived,
            "last_token_time": self.ended,
            "server_arrival_time": self.timing.arrived,
            "ctx_dispatch_time": self._dispatched(),
            "server_first_token_time": self._first_token(),
        }

    def _dispatched(self) -> float | None:
        context = self.performance.legs.get("context")
        return self.timing.dispatched if context is None else context.sent

    def _first_token(self) -> float | None:
        first = self.performance.first_token
        return self.timing.answered if first is None else first

    def _servers(self) -> dict[str, Any]:
        legs = self.performance.legs
        return {f"{phase}_server": legs[role].worker if role in legs else "" for role, phase in PHASES.items()}

    def _id_of(self, role: str) -> int | str | None:
        leg = self.performance.legs.get(role)
        return None if leg is None else _as_number(leg.request_id)

    def _handoff_id(self) -> dict[str, Any]:
        id = self.performance.handoff_id
        return {} if id is None else {"disagg_request_id": _as_number(id)}


def _items_of(leg: LegTimes, name: str, phase: str) -> list[Item]:
    return list(read_items(leg.told.get(name.lower(), ""), phase, leg.clock_ahead))


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def _as_number(id: int | str | None) -> int | str | None:
    return int(id) if isinstance(id, str) and id.isascii() and id.isdecimal() and len(id) < 20 else id
