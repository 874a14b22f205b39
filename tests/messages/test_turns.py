"""How a conversation of the Messages API is told in chat messages."""

from typing import Any

import pytest

from tests.messages.bodies import PIXEL, TOOL, USE, asked, refusal, request, result, text, turns

USED = ("assistant", [USE])
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
    ],
}
AT = "messages.0.content.0"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}}
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PIXEL}"}}


def test_text_is_the_same_however_it_is_sent() -> None:
    """A client sends a turn as one block while it is new, and as a string later; the prompt must not change."""
    assert asked(request(text("Hi") | {"cache_control": {"type": "ephemeral"}})) == asked(turns(("user", "Hi")))
    assert asked(turns(("user", "Hi"))) == [{"role": "user", "content": "Hi"}]


def test_several_texts_of_a_user_stay_parts() -> None:
    """In their order."""
    assert asked(request(text("a"), text("b"))) == [{"role": "user", "content": [text("a"), text("b")]}]


def test_texts_of_an_assistant_are_one() -> None:
    """A chat worker wrote them as one."""
    assert asked(turns(("user", "q"), ("assistant", [text("a"), text("b")])))[1] == {
        "role": "assistant",
        "content": "ab",
    }


def test_an_image_is_a_part() -> None:
    """Its bytes in a data URL, or its address."""
    address = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    (turn,) = asked(request(text("look"), IMAGE, address))
    assert turn["content"] == [
        text("look"),
        PICTURE,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_an_image_without_a_type_is_a_png() -> None:
    """As in TensorRT-LLM's frontend."""
    (turn,) = asked(request({"type": "image", "source": {"type": "base64", "data": PIXEL}}))
    assert turn["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


def test_a_document_of_text_is_said() -> None:
    """With its title and context before it."""
    document = {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "D"}}
    assert asked(request(document)) == [{"role": "user", "content": "T\n\nC\n\nD"}]


def test_a_document_of_blocks_is_said() -> None:
    """Text and images in their order."""
    source = {"type": "content", "content": [text("a"), IMAGE]}
    (turn,) = asked(request({"type": "document", "source": source}))
    assert turn["content"] == [text("a"), PICTURE]


def test_a_tool_use_is_a_call() -> None:
    """Its input as JSON, its id as it is."""
    assert asked(turns(("user", "q"), USED))[1] == CALLED


def test_a_tool_result_comes_before_what_its_turn_says() -> None:
    """Chat wants a call answered at once."""
    messages = asked(turns(("user", "q"), USED, ("user", [text("thanks"), result()])))
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
        {"role": "user", "content": "thanks"},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result([text("a"), text("b")]), "a\nb"),
        (result(None), ""),
        (result("no such city", is_error=True), "Tool execution failed: no such city"),
        (result("fine", is_error=False), "fine"),
    ],
)
def test_what_a_tool_gave_is_text(block: dict[str, Any], content: str) -> None:
    """Joined by lines, and marked where the tool failed."""
    assert asked(turns(("user", "q"), USED, ("user", [block])))[2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": content}
    ]


def test_images_that_a_tool_gave_follow_it() -> None:
    """In a user's turn, as a tool's message has text alone."""
    messages = asked(turns(("user", "q"), USED, ("user", [result([text("a"), IMAGE]), text("see?")])))
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "a"},
        {"role": "user", "content": [PICTURE, text("see?")]},
    ]


def test_thinking_goes_back_as_reasoning() -> None:
    """Under both names that workers have for it; its signature is nothing to them."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert asked(turns(("user", "q"), ("assistant", [thought, text("a")])))[1] == {
        "role": "assistant",
        "content": "a",
        "reasoning": "hm",
        "reasoning_content": "hm",
    }


@pytest.mark.parametrize(
    ("data", "place", "word"),
    [
        (turns(("tool", "x")), "messages.0.role", "user, assistant or system"),
        (turns(("system", "x")), "messages", "turn of the user"),
        (request({"type": "image", "source": {"type": "base64", "data": ""}}), f"{AT}.source.data", "empty"),
        (request({"type": "image", "source": {"type": "file", "file_id": "f"}}), f"{AT}.source.type", "files"),
        (request({"type": "image", "source": {"type": "url", "url": "file:///x"}}), f"{AT}.source.url", "http"),
        (request({"type": "image", "source": {"type": "base64", "data": "x", "media_type": "text/html"}}),
         f"{AT}.source.media_type", "image"),
        (request({"type": "image"}), f"{AT}.source", "object"),
        (request({"type": "document", "source": {"type": "base64", "data": "x"}}), f"{AT}.source.type", "PDF"),
        (request({"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}),
         f"{AT}.citations", "citations"),
        (request({"type": "text", "text": 1}), f"{AT}.text", "string"),
        (request({"type": "container_upload"}), AT, "container_upload"),
        (request({}), AT, "None"),
        (request(USE), AT, "assistant"),
        (request({"type": "thinking", "thinking": "x"}), AT, "assistant"),
        (request(result()), f"{AT}.tool_use_id", "no tool_use"),
        (request({"type": "tool_result"}), f"{AT}.tool_use_id", "string"),
        (turns(("assistant", [{"type": "redacted_thinking", "data": "x"}])), AT, "redacted_thinking"),
        (turns(("assistant", [{"type": "server_tool_use"}])), AT, "server_tool_use"),
        (turns(("assistant", [result()])), AT, "user's turn"),
        (turns(("assistant", [IMAGE, USE])), "messages.0.content", "images beside a tool_use"),
        (turns(("assistant", [USE | {"input": "x"}])), f"{AT}.input", "object"),
        (turns(("assistant", [USE | {"name": ""}])), f"{AT}.name", "empty"),
        (turns(("user", None)), "messages.0.content", "array"),
        (turns(("user", ["x"])), AT, "object"),
    ],
)  # fmt: skip
def test_what_chat_cannot_say_is_refused(data: dict[str, Any], place: str, word: str) -> None:
    """With its place and the reason."""
    message = refusal(data | {"tools": [TOOL]})
    assert message.startswith(f"{place}: ")
    assert word in message
