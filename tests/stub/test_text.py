"""The deterministic answer."""

import pytest

from plugins.dispatch.embedded.stub.text import ENDS_IN_CONTEXT, encode, generate, render


def answer(prompt: str, limit: int = 16, **options: object) -> str:
    """Give the whole answer to a prompt."""
    return "".join(piece.text for piece in generate(encode(prompt), limit, **options))  # type: ignore[arg-type]


def test_the_same_prompt_has_the_same_answer() -> None:
    """An answer follows from its prompt alone, and another prompt has another answer."""
    assert answer("a b c") == answer("a  b\nc")
    assert answer("a b c") != answer("a b d")


def test_a_shorter_answer_is_the_beginning_of_a_longer_one() -> None:
    """The limit cuts an answer and changes nothing before the cut."""
    assert answer("a b c", 40).startswith(answer("a b c", 10))
    assert len(list(generate(encode("a b c"), 10))) == 10


def test_choices_begin_alike_and_then_differ() -> None:
    """All choices share the token of their one context phase."""
    first, second = (list(generate(encode("a b"), 16, index=index)) for index in (0, 1))
    assert first[0] == second[0]
    assert first != second


def test_tokens_made_elsewhere_are_taken_over() -> None:
    """An answer that goes on from a given first token is the answer that was made in one place."""
    whole = list(generate(encode("a b"), 8))
    assert whole[0].token is not None
    assert list(generate(encode("a b"), 8, first=[whole[0].token])) == whole


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_stop_string_ends_the_answer_before_itself(length: int) -> None:
    """Text up to the stop string is shown, wherever its letters fall on tokens; nothing of it leaks."""
    whole = answer("some prompt", 30)
    stop = whole[20 : 20 + length]
    pieces = list(generate(encode("some prompt"), 30, [stop]))
    assert "".join(piece.text for piece in pieces) == whole[: whole.find(stop)]
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == ("stop", stop)


def test_a_stop_string_that_never_comes_loses_no_text() -> None:
    """Text that is held back is shown at the end."""
    assert answer("some prompt", 30, stops=["never in there"]) == answer("some prompt", 30)


def test_the_marker_ends_the_answer_with_its_first_token() -> None:
    """A prompt with the marker is answered with one token and `stop`, glued to a word or not."""
    for prompt in (f"a {ENDS_IN_CONTEXT} b", f"a{ENDS_IN_CONTEXT}b"):
        (piece,) = generate(encode(prompt), 16)
        assert piece.finish_reason == "stop"


def test_a_prompt_without_words_is_one_token() -> None:
    """Every prompt has at least one token."""
    assert len(encode("")) == len(encode(" \n")) == 1


def test_every_part_of_a_chat_counts() -> None:
    """Roles, texts, parts, tool calls and tools all change the rendered prompt."""
    chats: list[list[dict[str, object]]] = [
        [{"role": "user", "content": "x"}],
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}],
        [{"role": "user", "content": "x", "tool_calls": [1]}],
        [{"role": "user", "content": None}],
    ]
    rendered = {render(chat) for chat in chats} | {render(chats[0], [{"type": "function"}])}
    assert len(rendered) == len(chats) + 1
