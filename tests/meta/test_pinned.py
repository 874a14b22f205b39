"""The list of pinned behaviours: each that has to be a test is one, and every test that is named exists."""

import re
import tomllib
from functools import cache
from typing import Any

import pytest

from tests.meta.sources import ROOT

REQUIRED = {*range(1, 54)}
"""The numbers of the specification's behaviours that a frontend has to show to clients and workers."""

PINNED: dict[str, Any] = tomllib.loads((ROOT / "tests" / "pinned.toml").read_text())
BEHAVIOURS: dict[str, Any] = PINNED["behaviour"]


@cache
def known_names() -> frozenset[str]:
    """The name of every test function of the project."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("number", BEHAVIOURS)
def test_a_pinned_behaviour_is_stated_by_tests(number: str) -> None:
    """By one at least, and each of them is there."""
    behaviour = BEHAVIOURS[number]
    assert behaviour.keys() <= {"what", "tests", "differs"}
    assert behaviour["what"]
    assert behaviour["tests"]
    assert {*behaviour["tests"]} - known_names() == set()


def test_no_pinned_behaviour_is_forgotten() -> None:
    """Each of the required ones is listed."""
    missing = REQUIRED - {int(number) for number in BEHAVIOURS}
    assert not missing, f"behaviours without a test: {sorted(missing)}"
