"""The expected values of the fault matrix, read from the tables in `expected/`."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.matrix.client import Asked
from tests.matrix.seen import Seen
from tests.matrix.setups import Setup

FOLDER: Final = Path(__file__).parent / "expected"


@frozen
class Row:
    """One row: which point, of which engines (none: all) and kinds of requests (none: all), and what is seen then."""

    point: str
    engines: tuple[str, ...]
    kinds: frozenset[str]
    seen: Seen

    def fits(self, point: str, engine: str, asked: Asked) -> bool:
        """Whether the row speaks of a cell."""
        kinds = {asked[0], "stream" if asked[1] else "whole"}
        return self.point == point and (not self.engines or engine in self.engines) and self.kinds <= kinds


def expectation(setup: Setup, point: str, asked: Asked) -> Seen | None:
    """What is to be seen of a cell: the first row that fits; None if there is none."""
    rows = (row for row in _rows(setup.family) if row.fits(point, setup.name, asked))
    return next((row.seen for row in rows), None)


@cache
def _rows(family: str) -> tuple[Row, ...]:
    """The rows of the table of a family of engines."""
    return tuple(_read(family))


def _read(family: str) -> Iterator[Row]:
    for line in (FOLDER / f"{family}.md").read_text().splitlines():
        if line.startswith("|") and not line.startswith(("| point", "| ---")):
            point, engines, kind, *values = (cell.strip() for cell in line.strip("|").split("|"))
            named = tuple(name.strip() for name in engines.split(",") if name.strip())
            yield Row(point, named, frozenset(kind.split()), Seen.of(values))
