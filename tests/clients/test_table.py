"""The table at the end of a run of clients."""

from tests.clients.rows import ROWS
from tests.clients.table import CASES, lines


def test_what_was_seen_stands_in_its_cell() -> None:
    """Under its case, way by way; what was not tried is empty, or a dash where the other way was."""
    seen = {("b", "leave", "pair"): "FAILED", ("b", "leave", "chat"): "ok", ("a", "chat", "chat"): "ok"}

    assert [*lines(seen, ("pair", "chat"))] == ["   chat    leave", "b          FAILED / ok", "a  - / ok"]


def test_every_case_has_a_column() -> None:
    """None is lost on the way."""
    assert {case for row in ROWS for case in row.cases} <= {*CASES}
