"""The expected values of the fault matrix, read from the tables in `expected/`."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from tests.matrix.client import Asked
from tests.matrix.reading import told
from tests.matrix.seen import Seen
from tests.matrix.setups import OPENAI

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
        kinds = {asked[0], "stream" if asked[1] else "whole", "opened" if asked[0] != "completions" else ""}
        kinds.add("" if asked[0] in OPENAI else "named")
        return self.point == point and (not self.engines or engine in self.engines) and self.kinds <= kinds


def expectation(table: str, point: str, engine: str, asked: Asked) -> Seen:
    """What is to be seen of a cell: the first row of a table that fits."""
    rows = (row for row in _rows(table) if row.fits(point, engine, asked))
    seen = next(row.seen for row in rows)
    return evolve(seen, answer=told(seen.answer, asked[0]))


@cache
def _rows(table: str) -> tuple[Row, ...]:
    """The rows of a table."""
    return tuple(_read(table))


def _read(table: str) -> Iterator[Row]:
    for line in (FOLDER / f"{table}.md").read_text().splitlines():
        if line.startswith("|") and not line.startswith(("| point", "| ---")):
            point, engines, kind, *values = (cell.strip() for cell in line.strip("|").split("|"))
            named = tuple(name.strip() for name in engines.split(",") if name.strip())
            yield Row(point, named, frozenset(kind.split()), Seen.of(values))
