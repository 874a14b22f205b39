"""The fault matrix: whatever goes wrong wherever, the client is told and nothing is left anywhere."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.matrix.expectations import expectation
from tests.matrix.points import Point, points
from tests.matrix.seen import look
from tests.matrix.setups import APIS, SETUPS, TRANSPORTS, Setup
from tests.matrix.table import Cell
from tests.matrix.texts import expected_text
from tests.matrix.world import world

pytestmark = pytest.mark.anyio


def every_cell() -> list[Any]:
    """Every engine, transport, API, kind of answer and fault point."""
    return [
        pytest.param(setup, transport, (api, stream), point, id=_name(setup, transport, api, stream, point))
        for setup in SETUPS.values()
        for transport in TRANSPORTS
        for api in APIS
        for stream in (False, True)
        for point in points(setup)
        if (point.streamed if stream else point.whole) and (api == "chat" or not point.signals)
    ]


def _name(setup: Setup, transport: str, api: str, stream: bool, point: Point) -> str:
    return "-".join((setup.name, transport, api, "stream" if stream else "whole", point.name))


@pytest.mark.parametrize(("setup", "transport", "asked", "point"), every_cell())
async def test_cell(setup: Setup, transport: str, asked: tuple[str, bool], point: Point, cells: list[Cell]) -> None:
    """What the table says of the cell is what is seen, and nothing is left of the request."""
    text = await expected_text(setup.stub, asked)
    with capture_logs() as lines:
        async with world(setup, transport, asked, point.limits, signals=point.signals) as made:
            answer = await point.act(made)
            seen = await look(made, answer, text, lines)
    expected = expectation(setup, point.name, asked)
    assert expected is not None, f"the table {setup.family}.md has no row for this cell"
    problems = (*seen.differences(expected), *seen.complaints)
    cells.append(Cell(setup.name, transport, asked, point.name, seen, problems))
    assert not problems, "\n".join(problems)
