"""The table of what every client made of every case, which stands at the end of a run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

Seen = Mapping[tuple[str, str, str], str]
"""By client, case and way, what came of it."""

CASES: Final = (
    "chat", "stream", "tool", "streamed tool", "bad", "long", "long stream", "killed", "leave", "slow",
    "models", "count", "beta",
)  # fmt: skip

LEGEND: Final = "in each cell: through a pair of vLLM workers that speak the API / through a worker that only chats"


def lines(seen: Seen, ways: Iterable[str]) -> Iterator[str]:
    """The lines of the table."""
    clients = list(dict.fromkeys(client for client, _, _ in seen))
    cases = [case for case in CASES if any(case == found for _, found, _ in seen)]
    rows = [["", *cases]]
    for client in clients:
        rows.append([client])
        for case in cases:
            cells = [seen.get((client, case, way), "") for way in ways]
            rows[-1].append(" / ".join(cell or "-" for cell in cells) if any(cells) else "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
