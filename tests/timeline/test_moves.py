"""No plugin can be moved one step without a timeline changing, unless `tests/moves.toml` says why."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from kernel import OrderLine
from plugins.order import STANDARD_ORDER
from tests.timeline.stories import STORIES
from tests.timeline.world import replay, workers

EXPECTED = Path(__file__).parent / "expected"
MOVES = tomllib.loads((Path(__file__).parents[1] / "moves.toml").read_text())["commutes"]
COMMUTING = {tuple(entry["pair"]): entry["reason"] for entry in MOVES}
PAIRS = [(outer.name, inner.name) for outer, inner in pairwise(STANDARD_ORDER)]


def swapped(outer: str, inner: str) -> list[OrderLine]:
    """The standard order with two neighbours exchanged: one moved a step in, the other a step out."""
    lines = list(STANDARD_ORDER)
    place = [line.name for line in lines].index(outer)
    assert lines[place + 1].name == inner
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    return lines


@pytest.mark.anyio
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
async def test_moving_a_plugin_changes_a_timeline(outer: str, inner: str) -> None:
    """Exchanging two neighbours changes an outcome, or the pair is listed as commuting and changes none."""
    changed = []
    async with workers() as stubs:
        for story in STORIES:
            seen = await replay(story, swapped(outer, inner), stubs)
            if seen != (EXPECTED / f"{story.name}.timeline").read_text().splitlines():
                changed.append(story.name)
                if (outer, inner) not in COMMUTING:
                    break

    if (outer, inner) in COMMUTING:
        assert not changed, f"{outer} and {inner} are listed as commuting, but these outcomes changed: {changed}"
    else:
        assert changed, f"exchanging {outer} and {inner} changes no outcome: write one, or list the pair with a reason"


def test_commuting_pairs_are_neighbours_and_have_reasons() -> None:
    """`moves.toml` lists no pair that is not in the order, and none without a reason."""
    assert set(COMMUTING) <= set(PAIRS)
    assert all(reason.strip() for reason in COMMUTING.values())
