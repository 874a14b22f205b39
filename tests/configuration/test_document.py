"""Documents: what YAML means, where it stands, and what is no document."""

from pathlib import Path
from typing import Any

import pytest

from kernel import ConfigError
from plugins.configuration import Document
from plugins.configuration.references import MAXIMUM_BYTES


def refused(text: str) -> str:
    """The error of a document that cannot be parsed."""
    with pytest.raises(ConfigError) as caught:
        Document.parse(text, "kernel.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("yes", "yes"), ("no", "no"), ("on", "on"), ("Off", "Off"),
        ("tRUE", "tRUE"), ("y", "y"), ("~", None), ("null", None), ("", None), ("'null'", "null"), ("12", 12),
        ("-3", -3), ("+3", 3), ("017", 17), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"), ("0b11", "0b11"),
        ("12:30:00", "12:30:00"), ("2024-01-31", "2024-01-31"), ("1e3", 1000.0), ("1.5", 1.5), (".5", 0.5),
        ("1.", 1.0), (".inf", ".inf"), (".nan", ".nan"), ("=", "="), ("'1'", "1"), ('"true"', "true"),
        ("!!str 8080", "8080"), ("1.2.3", "1.2.3"), ("127.0.0.1:80", "127.0.0.1:80"), ("|\n  a\n  b", "a\nb\n"),
    ],
)  # fmt: skip
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    """No scalar becomes a bool, a time, a date or an octal number by surprise."""
    read = Document.parse(f"it: {text}\n", "f").data["it"]

    assert value == read
    assert type(value) is type(read)


def test_every_key_and_item_has_its_line() -> None:
    """A document knows the line of each key, of each list item, and of what a flow collection holds."""
    document = Document.parse("# comment\na:\n  b:\n    - x\n    - c: 1\nd: {e:\n  [1, 2]}\n", "f")

    assert document.data == {"a": {"b": ["x", {"c": 1}]}, "d": {"e": [1, 2]}}
    assert document.lines == {
        (): 1, ("a",): 2, ("a", "b"): 3, ("a", "b", 0): 4, ("a", "b", 1): 5, ("a", "b", 1, "c"): 5,
        ("d",): 6, ("d", "e"): 6, ("d", "e", 0): 7, ("d", "e", 1): 7,
    }  # fmt: skip
    assert document.at(("a", "b", 1, "q"), "no") == "f:5: a.b[1].q: no"
    assert document.at((), "no") == "f:1: no"
    assert document.at(("x\ny",), "no") == "f:1: x\\ny: no"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~", "\ufeff", "{}"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    """A file without content configures nothing, with or without a byte order mark."""
    assert Document.parse(text, "f").data == {}


def test_an_alias_is_read_where_it_is_used() -> None:
    """An anchored value may be used again, as often as a person would."""
    document = Document.parse("a: &shared {x: 1}\nb: *shared\n", "f")

    assert document.data == {"a": {"x": 1}, "b": {"x": 1}}
    assert document.lines["b", "x"] == 1


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [\n", "kernel.yaml:3: while parsing a flow node, expected the node content, but found"),
        ("a: 1\n b: 2\n", "kernel.yaml:2: mapping values are not allowed here"),
        ("a:\n\t- 1\n", "kernel.yaml:2: while scanning for the next token, found character '\\t'"),
        ("a: *b\n", "kernel.yaml:1: found undefined alias 'b'"),
        ("a: 1\nb: 2\na: 3\n", "kernel.yaml:3: duplicate key 'a', first on line 1"),
        ("a:\n  b: 1\n  'b': 2\n", "kernel.yaml:3: duplicate key 'b', first on line 2"),
        ("a: {8080: x}\n", "kernel.yaml:1: a key must be a string, got 8080"),
        ("true: x\n", "kernel.yaml:1: a key must be a string, got True"),
        ("~: x\n", "kernel.yaml:1: a key must be a string, got None"),
        ("? [a]\n: x\n", "kernel.yaml:1: tag:yaml.org,2002:seq cannot stand here"),
        ("- a\n", "kernel.yaml:1: expected a mapping, got ['a']"),
        ("text\n", "kernel.yaml:1: expected a mapping, got 'text'"),
        ("a: 1\n---\nb: 2\n", "kernel.yaml:2: expected a single document in the stream, but found another document"),
        ("x: 1\na: !!python/object/apply:os.system [x]\n", "kernel.yaml:2: tag:yaml.org,2002:python/object/apply"),
        ("a: !custom 1\n", "kernel.yaml:1: !custom cannot stand here"),
        ("a: !!int x\n", "kernel.yaml:1: tag:yaml.org,2002:int cannot stand here"),
        ("a: 1\nb: \0\n", "kernel.yaml:2: unacceptable character #x0000"),
        ("a: \x1b[31m\n", "kernel.yaml:1: unacceptable character #x001b"),
        ('a: "\\UFFFFFFFF"\n', "kernel.yaml:1: "),
        ("a: &x [*x]\n", "kernel.yaml:1: nested too deeply, or an alias contains itself"),
        ("a: &x {b: *x}\n", "kernel.yaml:1: nested too deeply, or an alias contains itself"),
        ("[" * 100_000, "kernel.yaml:1: nested too deeply"),
        ("a: " + "[" * 2000 + "]" * 2000, "kernel.yaml:1: nested too deeply"),
        (BOMB, "kernel.yaml:1: more than 100000 values, aliases counted as often as they are used"),
        ("#" * (MAXIMUM_BYTES + 1), "kernel.yaml:1: larger than 1 MiB"),
        ("a: !" + "x" * 5000 + " 1", "kernel.yaml:1: !xxx"),
    ],
)
def test_what_is_not_one_yaml_mapping_is_refused_with_its_line(text: str, problem: str) -> None:
    """Every document that cannot be read is one problem on one line, whatever it does to the parser."""
    message = refused(text)

    assert message.startswith(problem)
    assert "\n" not in message
    assert len(message) < 300


def test_a_file_is_named_as_the_user_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of a file begin with the path from the command line, not with an absolute one."""
    monkeypatch.chdir(tmp_path)
    Path("kernel.yaml").write_text("größe: 1\n", encoding="utf-8")

    assert Document.read(Path("kernel.yaml")).name == "kernel.yaml"
    assert Document.read(Path("kernel.yaml")).data == {"größe": 1}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, "cannot be read: no such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: is a directory"),
        (lambda path: path.write_bytes(b"a: \xff\n"), "'utf-8' codec can't decode byte 0xff"),
        (lambda path: path.write_bytes(b"\xff\xfea\0"), "'utf-8' codec can't decode byte 0xff"),
        (lambda path: path.write_bytes(b"#" * (MAXIMUM_BYTES + 1)), "larger than 1 MiB"),
        (lambda path: path.symlink_to(path), "cannot be read: too many levels of symbolic links"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, make: Any, problem: str) -> None:
    """A file that is missing, no file, no text or too large is named in a ConfigError."""
    path = tmp_path / "kernel.yaml"
    make(path)

    with pytest.raises(ConfigError) as caught:
        Document.read(path)

    assert str(caught.value).startswith(f"{path}: {problem}")
