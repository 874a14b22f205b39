"""What is known of a prompt: its text, its token ids, its blocks."""

from typing import Any

import pytest

from plugins.dispatch.policies.blocks import BLOCKS, chain, prompt_blocks
from plugins.dispatch.policies.identity import identity_of, opening_of, user_of
from plugins.dispatch.prompt import PIECES, Prompt
from plugins.slots import Conversation

PICTURE = "data:image/png;base64," + "A" * 100_000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"prompt": "hello"}, "hello"),
        ({"prompt": ["a", "b"]}, "ab"),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}, "system:s\nuser:u\n"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}]}, "user:textu\n"),
        ({"messages": [{"role": "tool", "tool_call_id": "1", "content": "r"}]}, "tool:1r\n"),
        ({"system": "s", "messages": [{"role": "user", "content": "u"}]}, "system:s\nuser:u\n"),
        ({"instructions": "i", "input": "u"}, "instructions:i\nu"),
        ({"input": [{"role": "user", "content": "u"}, {"type": "function_call_output", "output": "o"}]},
         "user:u\nNone:function_call_outputo\n"),
        ({}, ""),
    ],
)  # fmt: skip
def test_text_of_every_api(data: dict[str, Any], text: str) -> None:
    """A line for each message, with all strings in it."""
    assert "".join(Prompt(data).pieces) == text


def test_a_file_in_the_text_is_shortened_and_still_told_from_others() -> None:
    """By its length and its ends."""

    def prompt(url: str) -> Prompt:
        return Prompt({"messages": [{"role": "user", "content": [{"image_url": {"url": url}}]}]})

    assert len("".join(prompt(PICTURE).pieces)) < 200
    assert prompt(PICTURE).pieces == prompt(PICTURE).pieces != prompt(PICTURE + "B").pieces


def test_a_text_is_cut_where_it_is_no_longer_needed() -> None:
    """Also within a piece."""
    prompt = Prompt({"messages": [{"role": "user", "content": "x" * 10}] * 5})
    assert prompt.text(25) == "user:xxxxxxxxxx\nuser:xxxx"
    assert prompt.text(0) == ""
    assert prompt.text(1000) == "user:xxxxxxxxxx\n" * 5


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        ({"prompt": [1, 2, 3]}, 3),
        ({"prompt": [[1, 2, 3]]}, 3),
        ({"messages": [], "prompt_token_ids": [5, 6]}, 2),
        ({"prompt": "x" * 50}, 10),
        ({"prompt": ""}, 1),
        ({}, 1),
    ],
)
def test_length_in_tokens(data: dict[str, Any], tokens: int) -> None:
    """Exact of token ids, a fifth of a text's characters, and never nothing."""
    assert Prompt(data).tokens == tokens


def test_values_that_are_looked_at_are_bounded() -> None:
    """Deep, wide and many."""
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    for content in (deep, [["x"] * 1000] * 1000, [0] * 1_000_000, {str(number): "x" for number in range(100_000)}):
        assert len(Prompt({"messages": [{"role": "user", "content": content}]}).pieces) <= PIECES


@pytest.mark.parametrize("prompt", ["abcdefghijkl", list(range(12))])
def test_blocks_are_chained(prompt: Any) -> None:
    """Two prompts have the same numbers as far as they are the same, and a rest of a block has none."""
    numbers = chain(prompt, 5)
    assert len(numbers) == 2
    assert chain(prompt[:11], 5) == numbers
    assert chain(prompt[:9], 5) == numbers[:1]
    other = chain(prompt[1:2] + prompt[1:], 5)
    assert not set(other) & set(numbers)
    assert chain(prompt, 5, root=1) != numbers
    assert chain(prompt[:4], 5) == []


def test_a_block_in_another_place_has_another_number() -> None:
    """The same block twice is not one block."""
    assert len(set(chain([1] * 100, 10))) == 10


def test_blocks_that_are_looked_at_are_bounded() -> None:
    """Of text as of ids."""
    assert len(chain([1] * 100_000, 1)) == len(chain("x" * 100_000, 1)) == BLOCKS
    assert len(prompt_blocks(Prompt({"prompt": "x" * 3_000_000}), 1)) == BLOCKS


def test_what_is_skipped_does_not_count() -> None:
    """Tokens of ids, five characters each of text."""
    assert prompt_blocks(Prompt({"prompt": [9, 9, 1, 2]}), 2, skip=2) == chain([1, 2], 2)
    assert prompt_blocks(Prompt({"prompt": "y" * 10 + "x" * 10}), 2, skip=2) == chain("x" * 10, 10)
    assert prompt_blocks(Prompt({"prompt": "y" * 10}), 2, skip=5) == []


def test_what_a_request_is_known_by() -> None:
    """The parent of a sub-agent, the user in any of the APIs, the opening without later turns."""
    assert identity_of(None) is None
    assert identity_of(Conversation("c", "x")) == "c"
    assert identity_of(Conversation("c", "x", "p")) == "p"
    assert [user_of(data) for data in ({"user": "u"}, {"metadata": {"user_id": "v"}}, {"user": 1}, {})] == [
        "u", "v", None, None,
    ]  # fmt: skip
    first = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    later = {"messages": [*first["messages"], {"role": "assistant", "content": "a"}, {"role": "user", "content": "w"}]}
    assert opening_of(Prompt(first)) == opening_of(Prompt(later)) == "system:s\nuser:u\n"
    assert opening_of(Prompt({})) is None
