"""Log lines are JSON, one each, and a log that cannot be written ends no request."""

import os
import subprocess
import sys
from datetime import UTC, datetime

import orjson

PROGRAM = """
import structlog
from plugins.host.logs import configure_logs
configure_logs("info", "json")
log = structlog.get_logger()
log.debug("not.said")
log.info("thing.done", text="\\u00e4 \\ud800", number=10**30, odd=object, nested={1: (2,)})
try:
    raise RuntimeError("x")
except RuntimeError:
    log.exception("thing.failed")
import logging
logging.getLogger("other").warning("foreign %s", "line")
"""


def test_every_line_is_one_json_object() -> None:
    """Whatever a value is, the line can be read by a program."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=30, check=True)
    lines = [orjson.loads(line) for line in done.stderr.splitlines()]

    assert [line["event"] for line in lines] == ["thing.done", "thing.failed", "foreign line"]
    assert all(datetime.fromisoformat(line["timestamp"]).tzinfo == UTC for line in lines)
    assert [line["level"] for line in lines] == ["info", "error", "warning"]
    assert "RuntimeError: x" in lines[1]["exception"]


IN_TROUBLE = """
import structlog
from plugins.host.logs import configure_logs
configure_logs("info", "console")
def fail(headers):
    raise RuntimeError("x")
try:
    fail({"authorization": "Bearer " + "".join(("sec", "ret"))})
except RuntimeError:
    structlog.get_logger().exception("thing.failed")
"""


def test_a_terminal_is_shown_where_it_failed_and_not_on_what() -> None:
    """Local variables hold keys and requests; to show them all of a large process takes longer than requests wait."""
    done = subprocess.run([sys.executable, "-c", IN_TROUBLE], capture_output=True, timeout=30, check=True)
    assert b"in fail" in done.stderr
    assert b"RuntimeError: x" in done.stderr
    assert b"secret" not in done.stderr


def test_a_log_that_nobody_reads_any_more_ends_nothing() -> None:
    """Lines to a closed pipe are lost, and the program goes on."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        program = f"{PROGRAM}\nprint('went on')"
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writer, timeout=30, check=False
        )
    finally:
        os.close(writer)

    assert done.stdout == b"went on\n"


IN_A_LOOP = """
import asyncio, threading
import structlog
from plugins.host.logs import configure_logs
configure_logs("info", "json")
log = structlog.get_logger()
def many(name):
    for number in range(500):
        log.info(name, number=number)
async def main():
    threads = [threading.Thread(target=many, args=(f"thread-{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    many("turn")
    await asyncio.sleep(0)
    many("next")
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    log.info("last")
asyncio.run(main())
log.info("outside")
asyncio.run(main())
"""


def test_no_line_of_an_event_loop_is_lost() -> None:
    """Those of one turn are written together, also the last ones of a loop; threads log at the same time."""
    done = subprocess.run([sys.executable, "-c", IN_A_LOOP], capture_output=True, timeout=60, check=True)
    lines = [orjson.loads(line) for line in done.stderr.splitlines()]
    told = [line["event"] for line in lines]

    for name in ("turn", "next", "thread-0", "thread-1", "thread-2"):
        assert [line["number"] for line in lines if line["event"] == name] == [*range(500)] * 2
    assert told.count("last") == 2
    assert told.index("outside") > told.index("last")


TOGETHER = """
import asyncio, io, os, sys
import structlog
from plugins.host.logs import configure_logs
third = asyncio.Event()
class Said(io.StringIO):
    def write(self, text):
        if "third" in text:
            third.set()
        return super().write(text)
said = sys.stderr = Said()
configure_logs("info", "json")
log = structlog.get_logger()
def told():
    print(*(line.split('"event":"')[1].split('"')[0] for line in said.getvalue().splitlines()))
async def main():
    log.info("first")
    told()
    log.error("second")
    told()
    log.info("third")
    await third.wait()
    log.info("fourth")
    told()
    sys.stderr = sys.__stderr__
asyncio.run(main())
"""


def test_lines_wait_a_moment_for_each_other_but_no_error_does() -> None:
    """An error may be the last thing that a process says; what waits when it ends is written then."""
    done = subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, timeout=30, check=True)

    assert done.stdout.splitlines() == [b"", b"first second", b"first second third"]
    assert [orjson.loads(line)["event"] for line in done.stderr.splitlines()] == ["fourth"]


IN_A_FORK = """
import asyncio, os
import structlog
from plugins.host.logs import configure_logs
configure_logs("info", "json")
log = structlog.get_logger()
async def main():
    log.info("before")
    child = os.fork()
    if not child:
        log.info("child")
        os._exit(0)
    os.waitpid(child, 0)
    log.info("parent")
asyncio.run(main())
"""


def test_a_process_that_is_forked_says_what_it_has_to_say() -> None:
    """It has no event loop that would write its lines, and those that waited are not its own."""
    done = subprocess.run([sys.executable, "-c", IN_A_FORK], capture_output=True, timeout=30, check=True)
    assert [orjson.loads(line)["event"] for line in done.stderr.splitlines()] == ["before", "child", "parent"]


AS_STRUCTLOG = """
import structlog
from plugins.host.logs import configure_logs
configure_logs("warning", "json")
log = structlog.get_logger().bind(name="n", number=1)
log.info("not.said")
log.warning("%s is %d", "it", 2, number=3)
log.error("same", number=3)
log.critical("same", number=3)
log.log(40, "same", number=3)
with structlog.testing.capture_logs() as captured:
    log.warning("captured", number=4)
print(captured)
"""


def test_loggers_are_those_of_structlog() -> None:
    """They filter by level, have a context and arguments, and can be listened to."""
    done = subprocess.run([sys.executable, "-c", AS_STRUCTLOG], capture_output=True, timeout=30, check=True)
    lines = [orjson.loads(line) for line in done.stderr.splitlines()]
    told = [(line["event"], line["level"], line["name"], line["number"]) for line in lines]

    assert told == [
        ("it is 2", "warning", "n", 3),
        *[("same", level, "n", 3) for level in ("error", "critical", "error")],
    ]
    assert done.stdout == b"[{'name': 'n', 'number': 4, 'event': 'captured', 'log_level': 'warning'}]\n"
