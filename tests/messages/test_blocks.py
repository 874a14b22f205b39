"""Content blocks come one after the other, whatever a worker mixes."""

from typing import Any

import pytest

from plugins.chat.sequence import Sequence
from plugins.messages.events import MessageEvents
from plugins.slots import WorkerRejection
from tests.messages.bodies import parsed

A, B = '{"a":1}', '{"b":2}'


def blocks(writer: Sequence) -> list[Any]:
    """What was written, block by block; that they follow each other, and how, is checked."""
    found: list[Any] = []
    is_open = False
    for event in parsed(writer.take()):
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(found)
                found.append(event["content_block"])
                is_open = True
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(found) - 1
                for name, value in event["delta"].items():
                    if name != "type":
                        found[-1][name] = found[-1].get(name, "") + value
            case _:
                assert is_open
                is_open = False
    assert not is_open
    return found


def told(found: list[Any]) -> list[tuple[str, str]]:
    """The kind of each block and what is in it."""
    return [(block["type"], block.get("text", block.get("thinking", block.get("partial_json")))) for block in found]


def test_kinds_follow_each_other() -> None:
    """A block ends where one of another kind begins."""
    writer = Sequence(MessageEvents("m", ()))
    for kind, piece in (("thinking", "a"), ("thinking", "b"), ("text", "c"), ("text", "d"), ("thinking", "e")):
        writer.say(kind, piece)  # type: ignore[arg-type]
    writer.finish()
    assert told(blocks(writer)) == [("thinking", "ab"), ("text", "cd"), ("thinking", "e")]


def test_what_is_said_is_written_at_once() -> None:
    """Nothing waits that need not."""
    writer = Sequence(MessageEvents("m", ()))
    writer.say("text", "a")
    assert [event["type"] for event in parsed(writer.take())] == ["content_block_start", "content_block_delta"]
    writer.call(0, "t", "f", "")
    assert [event["type"] for event in parsed(writer.take())] == ["content_block_stop", "content_block_start"]
    writer.call(0, None, "", "{")
    assert [event["delta"]["partial_json"] for event in parsed(writer.take())] == ["{"]


@pytest.mark.parametrize("finish", [0, 1, 2, 3])
def test_calls_are_told_one_after_the_other(finish: int) -> None:
    """However their pieces are mixed; each has its own id, name and arguments."""
    writer = Sequence(MessageEvents("m", ()))
    pieces = [[(0, piece) for piece in A], [(1, piece) for piece in B]]
    order = {
        0: pieces[0] + pieces[1],
        1: pieces[1] + pieces[0],
        2: [piece for pair in zip(*pieces, strict=True) for piece in pair],
        3: pieces[0][:3] + pieces[1] + pieces[0][3:],
    }[finish]
    for index in (0, 1):
        writer.call(index, f"t{index}", f"f{index}", "")
    for index, piece in order:
        writer.call(index, None, "", piece)
    writer.finish()
    assert blocks(writer) == [
        {"type": "tool_use", "id": "t0", "name": "f0", "input": {}, "partial_json": A},
        {"type": "tool_use", "id": "t1", "name": "f1", "input": {}, "partial_json": B},
    ]


def test_a_second_call_is_told_while_it_comes() -> None:
    """It need not wait for the end of the stream where the first one is whole."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "f0", A)
    writer.take()
    writer.call(1, "t1", "f1", "{")
    assert [event["type"] for event in parsed(writer.take())] == [
        "content_block_stop", "content_block_start", "content_block_delta",
    ]  # fmt: skip


def test_text_within_a_call_waits_for_its_end() -> None:
    """In its order among the blocks."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "f0", "{")
    writer.say("text", "x")
    writer.say("text", "y")
    writer.call(1, "t1", "f1", B)
    writer.call(0, None, "", "}")
    writer.finish()
    assert told(blocks(writer)) == [("tool_use", "{}"), ("text", "xy"), ("tool_use", B)]


def test_calls_may_all_have_the_same_index() -> None:
    """Some workers number none of them; the id tells them apart."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "f", A)
    writer.call(0, "t1", "f", B)
    writer.finish()
    assert [block["id"] for block in blocks(writer)] == ["t0", "t1"]


def test_a_call_may_get_a_new_id_with_each_piece() -> None:
    """Some workers did; it is one call until its arguments are whole."""
    writer = Sequence(MessageEvents("m", ()))
    for number, piece in enumerate(A):
        writer.call(0, f"t{number}", "f", piece)
    writer.finish()
    (block,) = blocks(writer)
    assert (block["id"], block["partial_json"]) == ("t0", A)


def test_a_name_may_come_late() -> None:
    """The block begins once it is known."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "", "{")
    assert writer.take() == b""
    writer.call(0, None, "f", "}")
    writer.finish()
    assert [(block["name"], block["partial_json"]) for block in blocks(writer)] == [("f", "{}")]


def test_a_call_without_a_name_is_an_error() -> None:
    """Nobody could run it."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "", "{}")
    with pytest.raises(WorkerRejection):
        writer.finish()


def test_a_call_that_goes_on_after_its_end_is_an_error() -> None:
    """White space is nothing."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "f", A)
    writer.say("text", "x")
    writer.call(0, None, "", "\n")
    with pytest.raises(WorkerRejection):
        writer.call(0, None, "", "{}")


def test_an_answer_without_blocks_gets_an_empty_text() -> None:
    """As a whole one does."""
    writer = Sequence(MessageEvents("m", ()))
    writer.finish(empty=True)
    assert blocks(writer) == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_what_is_cut_is_ended(kind: Any) -> None:
    """So that a client keeps what it has."""
    writer = Sequence(MessageEvents("m", ()))
    writer.say(kind, "a")
    writer.cut()
    assert told(blocks(writer)) == [(kind, "a")]


def test_a_call_that_is_cut_is_not_ended() -> None:
    """It would look as if it could be run."""
    writer = Sequence(MessageEvents("m", ()))
    writer.call(0, "t0", "f", "{")
    writer.cut()
    assert [event["type"] for event in parsed(writer.take())] == ["content_block_start", "content_block_delta"]
