"""The table at the end of a run of clients."""

from tests.clients.rows import ROWS
from tests.clients.table import CASES, lines


def test_what_was_seen_stands_in_its_cell() -> None:
    """Under its case, way by way; what was not tried is empty, or a dash where the other way was."""
    seen = {("b", "leave", "pair"): "FAILED", ("b", "leave", "chat"): "ok", ("a", "chat", "chat"): "ok"}

    assert [*lines(seen, ("pair", "chat"))] == ["   chat    leave", "b          FAILED / ok", "a  - / ok"]


def test_a_cell_that_nobody_fills_can_be_marked() -> None:
    """Where a table has one way, and is to say that the client has no such case."""
    seen = {("a", "chat", "live"): "ok s", ("b", "leave", "live"): "ok"}

    assert [*lines(seen, ("live",), "-")] == ["   chat  leave", "a  ok s  -", "b  -     ok"]


def test_every_case_has_a_column() -> None:
    """None is lost on the way."""
    assert {case for row in ROWS for case in row.cases} <= {*CASES}
