"""Writes the expected orders and timelines anew, to be read in the diff: `python -m tests.snapshots`."""

import asyncio

import tests.cells  # noqa: F401 - before any metric is made
from tests.order.test_snapshots import FILES, RULE, outcome_of, split
from tests.timeline.rewrite import rewrite


def rewrite_orders() -> None:
    """Keep the YAML of every `.chain` file and replace what comes of it."""
    for path in FILES:
        given, _ = split(path.read_text())
        path.write_text(f"{given}{RULE}\n{outcome_of(given, path.name)}")


if __name__ == "__main__":
    rewrite_orders()
    asyncio.run(rewrite())
