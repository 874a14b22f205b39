"""How log lines look and where they go: one line of JSON each, or colours for a terminal."""

import asyncio
import atexit
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor

HELD_SECONDS: Final = 0.01
"""How long lines of an event loop wait for more to be written with them."""


class _Stamper:
    """Adds the time in UTC to the microsecond, as structlog's own does; the text of a second is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._format = ""

    def __call__(self, _logger: object, _method: str, values: EventDict) -> EventDict:
        microseconds = time.time_ns() // 1000
        second = microseconds // 1_000_000
        if second != self._second:
            self._format = time.strftime("%Y-%m-%dT%H:%M:%S.%%06dZ", time.gmtime(second))
            self._second = second
        values["timestamp"] = self._format % (microseconds % 1_000_000)
        return values


SHARED: tuple[Processor, ...] = (
    structlog.stdlib.add_log_level,
    _Stamper(),
    structlog.processors.StackInfoRenderer(),
)


_LEVELS: Final = {"warn": "warning", "exception": "error"}


class _JsonLine:
    """Makes a line of JSON in one step, unless it tells of an exception or holds what orjson does not take."""

    def __init__(self) -> None:
        self._stamp = _Stamper()

    def __call__(self, logger: object, method: str, values: EventDict) -> str:
        values["level"] = _LEVELS.get(method, method)
        self._stamp(logger, method, values)
        if "exc_info" in values or "stack_info" in values:
            values = structlog.processors.StackInfoRenderer()(logger, method, values)
            values = structlog.processors.format_exc_info(logger, method, values)
        try:
            # text, since what orjson writes is cut from far larger blocks, which must not be kept
            return orjson.dumps(values).decode()
        except (TypeError, ValueError):
            return str(_render(logger, method, values))


class _Lines:
    """Standard error; what cannot be written there is lost, and ends no request.

    Lines of an event loop are written together, which saves most requests a system call: after `HELD_SECONDS`, with
    the next error, or when the process ends.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # that which will write them
        self._writing = threading.RLock()  # the lines of a thread stay in their order
        atexit.register(self.flush)
        os.register_at_fork(before=self.flush)  # what waits is the parent's, and no loop runs in the child

    def add(self, line: str, *, at_once: bool = False) -> None:
        """Take a line without its end, to be written soon, or now."""
        self._waiting.append(line)
        loop = self._loop
        if at_once:
            self.flush()
        elif loop is None or not loop.is_running():
            self._schedule()

    def write(self, text: str) -> None:
        """Take a line of the standard library's, which flushes then."""
        self._waiting.append(text)

    def _schedule(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
        else:
            self._loop = loop
            loop.call_later(HELD_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what waits; other threads may add to it meanwhile."""
        self._loop = None
        lines: list[str] = []
        with self._writing:
            with suppress(IndexError):
                while True:
                    lines.append(self._waiting.popleft())
            with suppress(OSError, ValueError):
                sys.stderr.write("\n".join((*lines, "")))
                sys.stderr.flush()


class _LineLogger:
    """What structlog hands finished lines to."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def msg(self, line: str) -> None:
        self._lines.add(line)

    def error(self, line: str) -> None:
        self._lines.add(line, at_once=True)

    debug = info = warning = warn = log = msg
    critical = fatal = exception = failure = err = error


def _direct(number: int, to_line: _JsonLine, lines: _Lines) -> type[structlog.typing.FilteringBoundLogger]:
    """The class of loggers that do in one step what structlog does in many, for lines of the level `number` and up."""
    base: Any = structlog.make_filtering_bound_logger(number)

    def method(name: str) -> Callable[..., None]:
        general, at_once = getattr(base, name), name == "error"

        def say(self: Any, /, *event: Any, **values: Any) -> None:  # parameters with names would be compared to each
            if len(event) != 1 or to_line not in self._processors:  # structlog.testing listens
                general(self, *event, **values)
                return
            if self._context:
                values = {**self._context, **values}
            (values["event"],) = event
            lines.add(to_line(None, name, values), at_once=at_once)

        return say

    levels = (name for name in ("debug", "info", "warning", "error") if getattr(logging, name.upper()) >= number)
    return type("Direct", (base,), {name: method(name) for name in levels})


def configure_logs(level: str = "info", style: Literal["auto", "json", "console"] = "auto") -> None:
    """Send structlog's and the standard library's log lines to standard error from `level` on.

    `auto` means colours on a terminal and JSON elsewhere.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    lines, to_line = _Lines(), _JsonLine()
    last: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    if not console:
        last = [structlog.processors.format_exc_info, _render]
    structlog.configure(
        processors=[*SHARED, *last] if console else [to_line],
        wrapper_class=structlog.make_filtering_bound_logger(number) if console else _direct(number, to_line, lines),
        logger_factory=lambda *_: _LineLogger(lines),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *SHARED],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(cast("TextIO", lines))
    handler.terminator = ""
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(number, logging.WARNING))


def _to_json(values: dict[str, Any], default: Callable[[Any], Any], **_: object) -> str:
    """Write a line's values; what orjson does not take, as numbers of any size, is no reason to lose the line."""
    try:
        return orjson.dumps(values, default=default, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        text = {key: value.encode(errors="replace").decode() for key, value in values.items() if isinstance(value, str)}
        return json.dumps(values | text, default=repr)


_render: Final = structlog.processors.JSONRenderer(_to_json)
