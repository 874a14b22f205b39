"""What a file says that is a list of one kind of item."""

import pytest
from attrs import frozen

from kernel import ConfigError
from plugins.configuration import read_list


@frozen
class Item:
    """Something with a name."""

    name: str
    size: int = 1


def take(item: str | Item) -> str | Item:
    """Refuse one name."""
    if item == "bad":
        raise ValueError("this is a bad one")
    return item


def read(content: bytes) -> tuple[object, ...]:
    """The items of a file that is called `items.yaml`."""
    return read_list(content, "items.yaml", str | Item, take)


def problems(content: bytes) -> tuple[str, ...]:
    """All that is wrong with a file."""
    with pytest.raises(ConfigError) as caught:
        read(content)
    return caught.value.problems


@pytest.mark.parametrize(
    "content", [b"- a\n- {name: b, size: 2}\n", b'["a", {"name": "b", "size": 2}]', b'["a",{name: b,size: 2}]']
)
def test_a_list_is_yaml_or_json(content: bytes) -> None:
    """Of one kind of item, or of several."""
    assert read(content) == ("a", Item("b", 2))


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"[]", b"null", b"---\n"])
def test_a_file_may_have_no_items(content: bytes) -> None:
    """Whether that is right, whoever reads it knows."""
    assert read(content) == ()


def test_all_problems_are_told_with_their_places() -> None:
    """File, line and path, as for the configuration itself."""
    assert problems(b"- a\n- {name: b, sise: 2}\n- {size: 1}\n- 7\n") == (
        "items.yaml:2: [1].sise: unknown key 'sise', did you mean 'size'?",
        "items.yaml:3: [2]: missing required key 'name'",
        "items.yaml:4: [3]: expected str, got 7",
    )


def test_whoever_reads_may_refuse_items() -> None:
    """With the same places."""
    assert problems(b"- a\n\n- bad\n- bad\n") == (
        "items.yaml:3: [1]: this is a bad one",
        "items.yaml:4: [2]: this is a bad one",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: 1\n", "items.yaml:1: expected a list, got {'a': 1}"),
        (b"a", "items.yaml:1: expected a list, got 'a'"),
        (b"- a\n- [", "items.yaml:2: while parsing a flow node"),
        (b'[{"name": "a", "name": "b"}]', "items.yaml:1: duplicate key 'name', first on line 1"),
        (b"- a\n- \xff\n", "items.yaml: no UTF-8 at byte 6"),
        (b"# " + b"x" * (1 << 20), "items.yaml: larger than 1 MiB"),
        (b"[" * 100_000, "items.yaml:1: nested too deeply"),
        (b"- &a [*a]\n", "items.yaml:1: "),
        (b"- !!python/object/apply:os.getpid []\n", "items.yaml:1: "),
        (b"- a\n---\n- b\n", "items.yaml:2: expected a single document"),
        (b"- \x00\n", "items.yaml:1: "),
    ],
)
def test_what_is_no_list_is_refused(content: bytes, problem: str) -> None:
    """Whatever it is."""
    (told,) = problems(content)
    assert told.startswith(problem)
