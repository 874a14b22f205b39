"""What no committed file may hold: places of one machine, names of one registry, secrets, leftovers."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

# The patterns are put together so that this file does not hold what it looks for.
FORBIDDEN = {
    "a home folder": rf"/(?:{'home'}|{'Users'})/\w+|/{'root'}/",
    "a folder of one machine": rf"(?<![\w.])/{'work'}/|/{'mnt'}/\w",
    "a package registry": rf"{'files'}\.python{'hosted'}\.org|{'pypi'}\.org/simple|{'index'}-url",
    "a key": rf"\b{'sk'}-[A-Za-z0-9]{{20,}}|{'BEGIN'} [A-Z ]*{'PRIVATE'} KEY",
    "a conflict": rf"^(?:{'<' * 7}|{'>' * 7}) ",
    "a leftover": rf"\b(?:{'TO'}DO|{'FIX'}ME|{'X' * 3})\b|\b{'break'}point\(\)",
}
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ".chain", ".timeline", ".jinja", ".cfg", ".json", ""}
SKIPPED = {".git", ".venv", "__pycache__"}


@cache
def files() -> tuple[Path, ...]:
    """Every text file that is committed, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        paths = [path for path in ROOT.rglob("*") if not SKIPPED & {*path.relative_to(ROOT).parts}]
    return tuple(path for path in paths if path.is_file() and path.suffix in TEXT)


def test_there_is_something_to_look_at() -> None:
    """The list is not empty by mistake."""
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"README.md", "kernel/chain.py", "plugins/order.py"} <= names


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_file_holds_what_belongs_to_one_place_or_moment(what: str) -> None:
    """Whoever clones the project can use all of it."""
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    found = []
    for path in files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_every_file_ends_with_a_line() -> None:
    """And has no carriage returns."""
    for path in files():
        text = path.read_bytes()
        assert not text or text.endswith(b"\n"), path
        assert b"\r\n" not in text or path.parts[-2] == "fixtures", path
