"""A chat stream as a stream of Messages events, read with Anthropic's own library."""

from typing import Any

import pytest

from kernel import FAILED, Outcome
from plugins.chat.stream import ChatStream
from plugins.messages.answer import message_from
from plugins.messages.events import MessageEvents
from plugins.slots import WorkerRejection
from tests.messages.bodies import DONE, RECORDED, TOOL, call, chunk, event, parsed, usage
from tests.messages.reader import read, translate
from tests.messages.test_answer import answer, called

ROLE = chunk({"role": "assistant", "content": ""})
SAID = (
    ROLE,
    chunk({"reasoning": "hm, "}),
    chunk({"reasoning": 'caf\u00e9 \u2603 [DONE] "error"'}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo\n\ndata: [DONE]\n\n"}),
    chunk(call(0, "", "get_weather", "t0")),
    chunk(call(0, '{"city":')),
    chunk(call(1, '{"city": "Rome"}', "get_weather", "t1")),
    chunk(call(0, ' "Paris"}')),
    chunk({}, "tool_calls"),
    usage(40, 7, 32),
    DONE,
)
WHOLE = b"".join(SAID)
FAULTS = {
    "error": event({"error": {"message": "out of memory", "type": "server_error", "code": 500}}),
    "flat error": event({"object": "error", "message": "out of memory", "code": 400}),
    "named error": b"event: error\n" + event({"message": "out of memory"}),
    "no JSON": b"data: {\n\n",
    "no object": b"data: []\n\n",
    "content": event({"choices": [{"delta": {"content": ["x"]}}]}),
    "reasoning": event({"choices": [{"delta": {"reasoning": {"x": 1}}}]}),
    "arguments": event({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}}]}),
    "index": event({"choices": [{"delta": {"tool_calls": [{"index": [1]}]}}]}),
    "choices": event({"choices": [1]}),
    "delta": event({"choices": [{"delta": 1}]}),
    "no reason": chunk({}, "abort") + DONE,
    "done without a reason": DONE,
}


def normal(stream: bytes) -> bytes:
    """The events, with one id in place of the message's own."""
    start = stream.index(b"msg_")
    return stream[:start] + stream[start + len("msg_") + 24 :]


def test_a_whole_answer() -> None:
    """Thoughts, text and mixed calls; every event as the library expects it."""
    said = read(translate(*SAID))
    blocks = [block.to_dict() for block in said.content]
    assert said.model == "claude"
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks[0]["thinking"] == 'hm, caf\u00e9 \u2603 [DONE] "error"'
    assert blocks[1]["text"] == "Hello\n\ndata: [DONE]\n\n"
    assert [block["input"] for block in blocks[2:]] == [{"city": "Paris"}, {"city": "Rome"}]
    assert [block["id"] for block in blocks[2:]] == ["t0", "t1"]
    assert said.stop_reason == "tool_use"
    assert (said.usage.input_tokens, said.usage.cache_read_input_tokens, said.usage.output_tokens) == (8, 32, 7)


def test_streamed_and_whole_answers_are_equal() -> None:
    """But for the message's id."""
    text = 'hm, caf\u00e9 \u2603 [DONE] "error"'
    calls = [called('{"city": "Paris"}', "t0"), called('{"city": "Rome"}', "t1")]
    tokens = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 32}}
    body = answer("tool_calls", tokens, content="Hello\n\ndata: [DONE]\n\n", reasoning=text, tool_calls=calls)
    streamed = read(translate(WHOLE)).to_dict()
    assert streamed.pop("stop_details") is None
    assert streamed | {"id": ""} == message_from(body, "claude", ()) | {"id": ""}


def test_every_cut_gives_the_same_events() -> None:
    """Wherever a network cuts the stream in two, and if it cuts everywhere."""
    whole = normal(translate(*SAID))
    for cut in range(len(WHOLE) + 1):
        assert normal(translate(WHOLE[:cut], WHOLE[cut:])) == whole
    assert normal(translate(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))) == whole


@pytest.mark.parametrize("line", [b"\r\n", b"\r"])
def test_every_line_ending_is_understood(line: bytes) -> None:
    """With comments, names and a byte order mark as well."""
    other = b"\xef\xbb\xbf: hi\n\n" + WHOLE.replace(b"data: {", b"event: x\nid: 1\ndata:{")
    assert normal(translate(other.replace(b"\n", line))) == normal(translate(WHOLE))


@pytest.mark.parametrize("missing", [1, 2])
def test_an_end_that_lacks_its_blank_line_is_one(missing: int) -> None:
    """As the worker has said all."""
    assert normal(translate(WHOLE[:-missing])) == normal(translate(WHOLE))


def test_nothing_follows_the_end() -> None:
    """Whatever comes behind it."""
    assert normal(translate(WHOLE + SAID[3], b"x", FAULTS["error"])) == normal(translate(WHOLE))


def test_the_start_tells_the_prompts_tokens_where_the_worker_does() -> None:
    """With usage in every event; the answer's own tokens are told at its end."""
    tokens = {"prompt_tokens": 34, "completion_tokens": 1}
    stream = ChatStream(MessageEvents("claude", ()), empty=True)
    (start, *_) = parsed(stream.push(event({"choices": [{"delta": {"content": "a"}}], "usage": tokens})))
    assert start["message"]["usage"] == {
        "input_tokens": 34, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0,
    }  # fmt: skip
    assert start["message"] | {"id": "", "usage": ""} == {
        "id": "", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": "",
    }  # fmt: skip


def test_the_last_usage_counts() -> None:
    """Of a worker that tells it in some events, and not in the last."""
    tokens = {"prompt_tokens": 34, "completion_tokens": 1}
    told = event({"choices": [{"delta": {"content": "a"}}], "usage": tokens})
    later = event({"choices": [{"delta": {"content": "b"}}], "usage": tokens | {"completion_tokens": 2}})
    assert read(translate(told, later, chunk({}, "stop"), DONE)).usage.output_tokens == 2


def test_text_is_passed_on_as_it_comes() -> None:
    """An event for an event, at once."""
    stream = ChatStream(MessageEvents("claude", ()), empty=True)
    assert [told["type"] for told in parsed(stream.push(ROLE))] == ["message_start"]
    assert [told["type"] for told in parsed(stream.push(SAID[3]))] == ["content_block_start", "content_block_delta"]
    assert [told["type"] for told in parsed(stream.push(SAID[3]))] == ["content_block_delta"]


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({"finish": "stop"}, ("end_turn", None)),
        ({"finish": "length"}, ("max_tokens", None)),
        ({"finish": "stop", "stop_reason": "."}, ("stop_sequence", ".")),
        ({"finish": "stop", "matched_stop": "."}, ("stop_sequence", ".")),
    ],
)
def test_why_it_ended(fields: dict[str, Any], ends: tuple[str, str | None]) -> None:
    """As of a whole answer; one without content gets an empty text."""
    said = read(translate(ROLE, chunk({}, **fields), DONE, stops=(".",)))
    assert (said.stop_reason, said.stop_sequence) == ends
    assert [block.to_dict() for block in said.content] == [{"type": "text", "text": ""}]


def test_a_stream_that_ends_anywhere_never_looks_whole() -> None:
    """Without its last event there is no `message_stop` and no reason to stop, and the cut is told."""
    for cut in range(len(WHOLE) - len(DONE) + len("data: [DONE]")):
        stream = ChatStream(MessageEvents("claude", ()), empty=True)
        written = stream.push(WHOLE[:cut])
        error = stream.check()
        written += stream.close(Outcome(FAILED, error))
        assert isinstance(error, WorkerRejection)
        assert b"message_delta" not in written
        assert b"message_stop" not in written


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_stream_is_an_error(fault: str) -> None:
    """What came before it is told; what is open is ended, and the answer is not."""
    for rest in ((), (DONE,)):
        stream = ChatStream(MessageEvents("claude", ()), empty=True)
        written = stream.push(ROLE + SAID[3] + FAULTS[fault] + DONE)
        if rest:
            with pytest.raises(WorkerRejection):
                stream.push(DONE)
        error = stream.check()
        assert isinstance(error, WorkerRejection)
        assert error.status == (400 if "flat" in fault else 500 if fault == "error" else 502)
        assert (error.message == "out of memory") == ("error" in fault)
        kinds = [told["type"] for told in parsed(written + stream.close(Outcome(FAILED, error)))]
        assert kinds == ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]


def test_an_error_names_no_machine() -> None:
    """What workers tell of each other is not for clients."""
    stream = ChatStream(MessageEvents("claude", ()), empty=True)
    stream.push(event({"error": {"message": "no answer of http://10.0.0.1:8000", "code": 500}}))
    assert "10.0.0.1" not in str(stream.check())


def test_an_event_without_end_is_an_error() -> None:
    """Before it fills the memory."""
    stream = ChatStream(MessageEvents("claude", ()), empty=True)
    for _ in range(17):
        stream.push(b"x" * 1024 * 1024)
    assert isinstance(stream.check(), WorkerRejection)


@pytest.mark.parametrize("kind", ["stream_usage", "stream_continuous_usage", "tools_named_stream"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_streams_of_real_engines_can_be_told(engine: str, kind: str) -> None:
    """Text with its usage, and a tool call as each of them streams it."""
    recorded = (RECORDED / f"{engine}_{kind}.sse").read_bytes()
    said = read(translate(recorded))
    assert said.usage.input_tokens + (said.usage.cache_read_input_tokens or 0) >= 34
    assert said.usage.output_tokens >= 4
    if kind == "tools_named_stream" and engine != "sglang":  # recorded without its parser of tool calls
        (block,) = said.content
        assert block.type == "tool_use"
        assert block.name == TOOL["name"]
        assert block.input == {"city": "Paris"}
        assert said.stop_reason == "tool_use"
    else:
        (block,) = said.content
        assert block.type == "text"
        assert block.text
