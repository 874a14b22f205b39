"""Structuring: what plain data becomes, and what is said of every mistake."""

from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from kernel import Secret
from plugins.configuration import Document, structure
from tests.configuration.classes import Color, Deep, Name, Nothing, Pool, Required, made


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("allow: true", "allow", True), ("count: -7", "count", -7), ("ratio: 2", "ratio", 2.0),
        ("ratio: 1e-3", "ratio", 0.001), ("name: '8'", "name", "8"), ("maybe:", "maybe", None),
        ("maybe: yes", "maybe", "yes"), ("either: 3", "either", 3), ("either: a", "either", "a"),
        ("mode: slow", "mode", "slow"), ("mode: 3", "mode", 3), ("color: red", "color", Color.RED),
        ("color: 1", "color", Color.ONE), ("label: short", "label", Name.SHORT), ("path: /x", "path", Path("/x")),
        ("words: [a, b]", "words", ("a", "b")), ("words: []", "words", ()), ("numbers: [1]", "numbers", [1]),
        ("tags: [a, a]", "tags", frozenset({"a"})), ("limits: {a: 1}", "limits", {"a": 1.0}),
        ("limits:", "limits", {}), ("pools: [{engine: x, size: 2}]", "pools", (Pool("x", 2),)),
        ("pool: {engine: x}", "pool", Pool("x")), ("pool:", "pool", None),
        ("by_name: {a: {engine: x}}", "by_name", {"a": Pool("x")}),
        ("deep: {name: a, children: [{name: b}]}", "deep", Deep("a", (Deep("b"),))),
        ("raw: {a: [1, no]}", "raw", {"a": [1, "no"]}), ("anything: [1]", "anything", [1]),
        ("private: 4", "_private", 4), ("parsed: '12'", "parsed", 12),
    ],
)  # fmt: skip
def test_values_of_the_right_type_are_taken_as_they_are(text: str, name: str, value: object) -> None:
    """Every supported type takes its own values, and an empty mapping may be left out."""
    built, problems = made(f"  {text}\n")

    assert problems == []
    assert getattr(built, name) == value
    assert type(getattr(built, name)) is type(value)


LONG = "z" * 80


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allow: yes", "it.allow: expected bool, got 'yes'"),
        ("allow: 1", "it.allow: expected bool, got 1"),
        ("allow:", "it.allow: expected bool, got None"),
        ("count: true", "it.count: expected int, got True"),
        ("count: '8'", "it.count: expected int, got '8'"),
        ("count: 1.0", "it.count: expected int, got 1.0"),
        ("count: 017x", "it.count: expected int, got '017x'"),
        ("ratio: true", "it.ratio: expected float, got True"),
        ("ratio: .inf", "it.ratio: expected float, got '.inf'"),
        ("ratio: 1e999", "it.ratio: expected float, got inf"),
        (f"ratio: 1{'0' * 400}", f"it.ratio: expected float, got 1{'0' * 59}"),
        ("name: 8080", "it.name: expected str, got 8080"),
        ("name: [a]", "it.name: expected str, got ['a']"),
        (f"count: {LONG}", f"it.count: expected int, got '{'z' * 59}"),
        ("maybe: 1", "it.maybe: expected str, got 1"),
        ("either: 1.5", "it.either: expected int, got 1.5"),
        ("mode: quick", "it.mode: expected one of ['fast', 'slow', 3], got 'quick'"),
        ("mode: 3.0", "it.mode: expected one of ['fast', 'slow', 3], got 3.0"),
        ("color: true", "it.color: expected one of ['red', 1], got True"),
        ("color: [red]", "it.color: expected one of ['red', 1], got ['red']"),
        ("label: long", "it.label: expected one of ['short'], got 'long'"),
        ("path: 1", "it.path: expected Path, got 1"),
        ("words: abc", "it.words: expected a list, got str"),
        ("words:", "it.words: expected a list, got NoneType"),
        ("words: {a: b}", "it.words: expected a list, got dict"),
        ("words: [a, 2]", "it.words[1]: expected str, got 2"),
        ("ports: [1, 0]", "it.ports: 'ports' must be >= 1: 0"),
        ("ports: [x, 0]", "it.ports[0]: expected int, got 'x'"),
        ("tags: [[a]]", "it.tags[0]: expected str, got ['a']"),
        ("limits: [1]", "it.limits: expected a mapping, got list"),
        ("limits: {a: x}", "it.limits.a: expected float, got 'x'"),
        ("pool: x", "it.pool: expected a mapping, got str"),
        ("pools: [{size: 1}]", "it.pools[0]: missing required key 'engine'"),
        ("pools: [{engine: x, size: 0}]", "it.pools[0].size: 'size' must be >= 1: 0"),
        ("by_name: {a: {engine: 1}}", "it.by_name.a.engine: expected str, got 1"),
        ("deep: {name: a, children: [{name: 1}]}", "it.deep.children[0].name: expected str, got 1"),
        ("pair: [1, a]", "it.pair: expected tuple[int, str], got [1, 'a']"),
        ("allwo: true", "it.allwo: unknown key 'allwo', did you mean 'allow'?"),
        ("pool: {engine: x, zzz: 1}", "it.pool.zzz: unknown key 'zzz', valid keys are engine, size, timeout"),
        ("state: [1]", "it.state: unknown key 'state', valid keys are allow, count"),
        ("_private: 1", "it._private: unknown key '_private', did you mean 'private'?"),
        ("low: 2", "it.low: 'low' must be in [0, 1] (got 2)"),
        ("code: '1'", "it.code: 'code' must match regex '[a-z]' ('1' doesn't)"),
        ("even: 1", "it.even: KeyError: 'odd'"),
        ("parsed: x", "it.parsed: invalid literal for int() with base 10: 'x'"),
        ("parsed: [1]", "it.parsed: TypeError: int() argument must be a string"),
        ("name: bad", "it: name must not be bad"),
        ("name: worse", "it: ZeroDivisionError: at the end"),
        ("{count: 10, limit: 5}", "it: limit is below count"),
    ],
)
def test_a_wrong_value_is_one_problem_at_its_place(text: str, problem: str) -> None:
    """Nothing is coerced; the problem has the line and the path of what is wrong."""
    built, problems = made(f"  {text}\n")

    assert built is None
    assert len(problems) == 1
    line = 1 if problem.startswith("it: ") else 2
    assert problems[0].startswith(f"{line}: {problem}")
    assert "\n" not in problems[0]


def test_every_problem_is_reported_at_once_in_the_order_of_the_file() -> None:
    """One wrong value does not hide the next, a validator's refusal not that of another field."""
    built, problems = made(
        "  low: 5\n  allow: yes\n  pools:\n  - engine: 1\n    sise: 2\n  - size: 0\n"
        "  code: '9'\n  typo: 1\n  count: x\n"
    )

    assert built is None
    assert [problem.partition(": ")[0] for problem in problems] == ["2", "3", "5", "6", "7", "7", "8", "9", "10"]
    assert problems[3:6] == [
        "6: it.pools[0].sise: unknown key 'sise', did you mean 'size'?",
        "7: it.pools[1]: missing required key 'engine'",
        "7: it.pools[1].size: 'size' must be >= 1: 0",
    ]


def test_missing_keys_are_reported_on_the_line_of_their_mapping() -> None:
    """A class with required fields says which keys it misses, also where the mapping was left empty."""
    assert made("  model: a\n", Required)[1] == ["1: it: missing required key 'region'"]
    assert made("", Required)[1] == ["1: it: missing required key 'model'", "1: it: missing required key 'region'"]


def test_a_class_without_keys_says_so() -> None:
    """Run-time state is no configuration, even where its type exists only for type checkers."""
    assert made("", Nothing) == (Nothing(), [])
    assert made("  seen: 1\n", Nothing)[1] == ["2: it.seen: unknown key 'seen', valid keys are none"]


def test_a_key_whose_type_cannot_be_resolved_is_a_problem_of_its_class() -> None:
    """A type that has no meaning at run time is named."""

    @frozen
    class Lost:
        lost: "Missing | None" = None  # type: ignore[name-defined]  # noqa: F821

    assert made("", Lost) == (None, ["1: it: NameError: name 'Missing' is not defined"])


@pytest.mark.parametrize("kind", [Exception, int, "text", list, dict[str, Secret]])
def test_structure_never_raises(kind: Any) -> None:
    """Whatever a plugin names as a type, a value that does not fit is a problem."""
    problems: list[str] = []

    assert structure(Document.parse("", "f"), ("a",), object(), kind, problems) is None
    assert len(problems) == 1
