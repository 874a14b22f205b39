"""How log lines look and where they go: one line of JSON each, or colours for a terminal."""

import asyncio
import atexit
import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor


class _Stamper:
    """Adds the time in UTC to the microsecond, as structlog's own does; the text of a second is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def __call__(self, _logger: object, _method: str, values: EventDict) -> EventDict:
        second, rest = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        values["timestamp"] = f"{self._text}.{rest // 1000:06d}Z"
        return values


SHARED: tuple[Processor, ...] = (
    structlog.stdlib.add_log_level,
    _Stamper(),
    structlog.processors.StackInfoRenderer(),
)


_LEVELS = {"warn": "warning", "exception": "error"}


class _JsonLine:
    """Makes a line of JSON in one step, unless it tells of an exception or holds what orjson does not take."""

    def __init__(self) -> None:
        self._stamp = _Stamper()
        self._render = structlog.processors.JSONRenderer(_to_json)

    def __call__(self, logger: object, method: str, values: EventDict) -> str | bytes:
        values["level"] = _LEVELS.get(method, method)
        self._stamp(logger, method, values)
        if "exc_info" in values or "stack_info" in values:
            values = structlog.processors.StackInfoRenderer()(logger, method, values)
            values = structlog.processors.format_exc_info(logger, method, values)
        try:
            return orjson.dumps(values, option=orjson.OPT_NON_STR_KEYS).decode()
        except (TypeError, ValueError):
            return self._render(logger, method, values)


class _Lines:
    """Standard error; what cannot be written there is lost, and ends no request.

    In an event loop the lines of one turn are written together when it ends, which saves most requests a system call.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # that which will write them
        self._writing = threading.RLock()  # the lines of a thread stay in their order
        atexit.register(self.drain)

    def write(self, text: str) -> int:
        self._waiting.append(text)
        return len(text)

    def flush(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.drain()
            return
        if loop is not self._loop:
            self._loop = loop
            loop.call_soon(self.drain)

    def drain(self) -> None:
        """Write what waits; other threads may add to it meanwhile."""
        self._loop = None
        lines: list[str] = []
        with self._writing:
            with suppress(IndexError):
                while True:
                    lines.append(self._waiting.popleft())
            with suppress(OSError, ValueError):
                sys.stderr.write("".join(lines))
                sys.stderr.flush()


class _LineLogger:
    """What structlog hands finished lines to."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def msg(self, text: str) -> None:
        self._lines.write(text + "\n")
        self._lines.flush()

    debug = info = warning = warn = error = critical = fatal = exception = log = failure = err = msg


def configure_logs(level: str = "info", style: Literal["auto", "json", "console"] = "auto") -> None:
    """Send structlog's and the standard library's log lines to standard error from `level` on.

    `auto` means colours on a terminal and JSON elsewhere.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    lines = _Lines()
    last: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    if not console:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_to_json)]
    structlog.configure(
        processors=[*SHARED, *last] if console else [_JsonLine()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _LineLogger(lines),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *SHARED],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(cast("TextIO", lines))
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
