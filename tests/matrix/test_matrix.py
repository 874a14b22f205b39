"""The fault matrix: whatever goes wrong wherever, the client is told and nothing is left anywhere."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.matrix.client import Asked
from tests.matrix.expectations import expectation
from tests.matrix.points import Point, points, replaceable
from tests.matrix.seen import look
from tests.matrix.setups import SETUPS, TRANSPORTS, Setup
from tests.matrix.table import Cell
from tests.matrix.texts import expected_text
from tests.matrix.world import world

pytestmark = pytest.mark.anyio


def every_cell() -> Iterator[Any]:
    """Every engine and fault point, streamed and not; over one transport every API, over the other one chat alone."""
    for setup in SETUPS.values():
        for transport, api in ((transport, api) for transport in TRANSPORTS for api in setup.apis):
            if api == "chat" or transport == TRANSPORTS[0]:
                yield from (
                    _cell(setup, transport, (api, stream), point)
                    for stream in (False, True)
                    for point in points(setup)
                    if (point.streamed if stream else point.whole)
                    and (api == "chat" or not (point.signals or point.alike))
                    and (transport == TRANSPORTS[0] or not point.alike)
                )


def every_replacement() -> Iterator[Any]:
    """Every engine and fault of a worker that another one could stand in for, streamed and not."""
    for setup in SETUPS.values():
        for stream in (False, True):
            yield from (_cell(setup, TRANSPORTS[0], ("chat", stream), point) for point in replaceable(setup))


def _cell(setup: Setup, transport: str, asked: Asked, point: Point) -> Any:
    name = "-".join((setup.name, transport, asked[0], "stream" if asked[1] else "whole", point.name))
    return pytest.param(setup, transport, asked, point, id=name)


@pytest.mark.parametrize(("setup", "transport", "asked", "point"), [*every_cell()])
async def test_cell(setup: Setup, transport: str, asked: Asked, point: Point, cells: list[Cell]) -> None:
    """With one worker of each role, what the table says is what is seen, and nothing is left of the request."""
    cell = await _run(setup, transport, asked, point, 1)
    cells.append(cell)
    assert not cell.problems, "\n".join(cell.problems)


@pytest.mark.parametrize(("setup", "transport", "asked", "point"), [*every_replacement()])
async def test_replacement(setup: Setup, transport: str, asked: Asked, point: Point, cells: list[Cell]) -> None:
    """With a second worker of each role that is well, the request gets its answer wherever that is safe."""
    cell = await _run(setup, transport, asked, point, 2)
    cells.append(cell)
    assert not cell.problems, "\n".join(cell.problems)


async def _run(setup: Setup, transport: str, asked: Asked, point: Point, each: int) -> Cell:
    """Run a cell with so many workers of each role."""
    text = await expected_text(setup.stub, asked)
    with capture_logs() as lines:
        async with world(setup, transport, asked, point.limits, signals=point.signals, each=each) as made:
            answer = await point.act(made)
            seen = await look(made, answer, text, lines)
    two = each > 1
    expected = expectation(f"{setup.family}-two" if two else setup.family, point.name, setup.name, asked)
    name = f"{point.name}, and another is well" if two else point.name
    return Cell(setup.name, transport, asked, name, seen, (*seen.differences(expected), *seen.complaints))
