"""The table of what every client made of every case, which stands at the end of a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pytest

Seen = Mapping[tuple[str, str, str], str]
"""By client, case and way, what came of it."""

CASES: Final = (
    "chat", "stream", "tool", "streamed tool", "bad", "long", "long stream", "killed", "leave", "slow",
    "models", "count", "beta",
)  # fmt: skip

PROPERTIES: Final = ("client", "case", "way")
"""What a test records to have a cell in a table; `mark` may be a letter that its legend explains."""

LEGEND: Final = "in each cell: through a pair of vLLM workers that speak the API / through a worker that only chats"


def show(reporter: pytest.TerminalReporter, legend: str, ways: Sequence[str], *, nothing: str = "") -> None:
    """Print what each client made of each case, if this was tried in one of the ways; `nothing` is an empty cell."""
    seen: dict[tuple[str, str, str], str] = {}
    for outcome, word in (("passed", "ok"), ("failed", "FAILED"), ("error", "ERROR")):
        for report in reporter.stats.get(outcome, ()):
            told = dict(getattr(report, "user_properties", ()))
            if told.get("way") in ways:
                client, case, way = (str(told[name]) for name in PROPERTIES)
                seen[client, case, way] = f"{word} {told.get('mark', '')}".rstrip()
    if seen:
        reporter.section("clients")
        for line in (legend, "", *lines(seen, ways, nothing)):
            reporter.write_line(line)


def lines(seen: Seen, ways: Iterable[str], nothing: str = "") -> Iterator[str]:
    """The lines of the table."""
    clients = list(dict.fromkeys(client for client, _, _ in seen))
    cases = [case for case in CASES if any(case == found for _, found, _ in seen)]
    rows = [["", *cases]]
    for client in clients:
        rows.append([client])
        for case in cases:
            cells = [seen.get((client, case, way), "") for way in ways]
            rows[-1].append(" / ".join(cell or "-" for cell in cells) if any(cells) else nothing)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
