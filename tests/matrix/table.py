"""The fault matrix as a table: what was seen of every cell, short for a terminal and whole as Markdown."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from tests.matrix.client import Asked
from tests.matrix.seen import Seen

LEGEND: Final = (
    "whole answer / stream: the status that the client got, `200+` with an error inside, `left` if it did not wait",
    "each cell also holds for every transport and API: legs, retries, aborts, sockets, blocks and health as in",
    "tests/matrix/expected/; `!` marks where something was otherwise",
)


@frozen
class Cell:
    """One cell that was run: which, what was seen, and what of it was not as expected."""

    engine: str
    transport: str
    asked: Asked
    point: str
    seen: Seen
    problems: tuple[str, ...]

    @property
    def brief(self) -> str:
        """The answer in a few letters."""
        answer = self.seen.answer
        if answer == "nothing":
            return "left"
        status, _, rest = answer.partition(" ")
        return f"{status.rstrip(',')}+" if rest.startswith("then") else status


CELLS: Final = pytest.StashKey[list[Cell]]()


def lines(cells: Iterable[Cell]) -> Iterator[str]:
    """One line a fault point, one column an engine."""
    cells = list(cells)
    engines = list(dict.fromkeys(cell.engine for cell in cells))
    rows = [["", *engines]]
    for point in dict.fromkeys(cell.point for cell in cells):
        mine = [cell for cell in cells if cell.point == point]
        rows.append([point, *(_both([cell for cell in mine if cell.engine == engine]) for engine in engines)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _both(cells: list[Cell]) -> str:
    """The answers to requests for a whole answer and for a stream."""
    kinds = [[cell for cell in cells if cell.asked[1] is stream] for stream in (False, True)]
    texts = [" ".join(sorted({cell.brief for cell in kind})) for kind in kinds if kind]
    same = "/".join(texts if len(set(texts)) > 1 else texts[:1])
    return same + ("!" if any(cell.problems for cell in cells) else "")


def write_markdown(path: Path, cells: Iterable[Cell]) -> None:
    """Write every cell with all of its columns."""
    rows = []
    for cell in cells:
        where = {"engine": cell.engine, "transport": cell.transport, "api": cell.asked[0]}
        kind = {"kind": "stream" if cell.asked[1] else "whole", "point": cell.point}
        rows.append({**where, **kind, **cell.seen.row(), "problems": "; ".join(cell.problems) or "-"})
    heads = list(rows[0]) if rows else []
    table = [heads, ["---"] * len(heads), *(list(row.values()) for row in rows)]
    path.write_text("# Fault matrix\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in table))
