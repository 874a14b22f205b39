"""Clients that wait for a long prompt to be computed, and are shown meanwhile that somebody works for them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.agents import CLAUDE, CODEX, Agent
from tests.clients.client import Client, Library
from tests.clients.rows import ROWS, Row
from tests.clients.world import WAYS, World, legs, post
from tests.e2e.programs import Kernel, kernel, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("way", WAYS)]

TEXT = "Done: hi there."
PROMPT = f"Hello [says {TEXT}]"
SLOW = {"kind": "slow", "seconds": 0.3}

slow = pytest.mark.parametrize("case", ["slow"])
"""The case in the table."""


@pytest.fixture(scope="module")
def patient(served: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel before the same workers that begins streams early, and shows signs of life all the time."""
    pools = "".join(f"        - {{model: {way}, {legs(way, *_ends(served, way))}}}\n" for way in WAYS)
    early = "  early_start: {config: {after_seconds: 0.1, interval_seconds: 0.1}}\n"
    text = f"plugins:\n{early}  dispatch:\n    config:\n      pools:\n{pools}"
    with kernel(tmp_path_factory.mktemp("patient"), text) as started:
        until(lambda: len(started.logged("worker.up")) == 3)
        yield started
        assert started.program.stop() == 0
        assert not started.logged("plugin.failed")


@pytest.fixture
def waiting(served: World, patient: Kernel, way: str) -> str:
    """The kernel's URL, behind which the next request takes its time before its first token."""
    post(served.workers[way][0] + "/_stub/faults", SLOW)
    return patient.url


def _ends(served: World, way: str) -> tuple[str, str]:
    urls = served.workers[way]
    return urls[0], urls[-1]


@pytest.mark.parametrize(("path", "sign"), [("chat/completions", b": "), ("messages", b"event: ping")])
def test_signs_of_life(waiting: str, path: str, sign: bytes, way: str) -> None:
    """They come in the way of the API, before everything else unless the worker opens its stream at once."""
    asked = {"model": way, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 64, "stream": True}
    answer = httpx.post(f"{waiting}/v1/{path}", json=asked, timeout=60)

    places = [place for place, line in enumerate(answer.content.splitlines()) if line.startswith(sign)]
    assert len(places) > 1
    assert places[0] == 0 or way == "chat"


@slow
@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("row", [row for row in ROWS if row.streams], ids=lambda row: row.name)
def test_a_library(waiting: str, clients: Callable[[Library], Client], row: Row, case: str, way: str) -> None:
    """The stream is what it would be without them."""
    told = clients(row.library).ask(url=waiting, api=row.api, case=case, model=way, prompt=PROMPT)

    assert (told["text"], told["finish"], told.get("error")) == (TEXT, row.finish, None), told


@slow
@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("row", [CLAUDE, CODEX], ids=lambda agent: agent.name)
def test_an_agent(tmp_path: Path, waiting: str, row: Agent, case: str, way: str) -> None:
    """The turn is what it would be without them."""
    outcome = row.run(tmp_path, waiting, way, PROMPT)

    assert (outcome.code, outcome.text, outcome.failed) == (0, TEXT, False), outcome
