"""What is kept of the times that TensorRT-LLM's workers tell; no worker takes part."""

from functools import partial

import pytest

from kernel import Outcome
from plugins.dispatch.editing import EventEditor
from plugins.dispatch.engine import Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.trtllm_times import clock_ahead, read_event
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import LegTimes, Payload, Performance

pytestmark = pytest.mark.anyio

EVENT = b"event: trtllm.perf_metrics\ndata: "


@pytest.mark.parametrize(
    ("told", "ahead"),
    [
        ("receive;ts=103.000000000, transmit;ts=105.000000000", 1.0),
        ("receive;ts=3.0,transmit;ts=5.0", -99.0),
        ("receive;ts=3.0, transmit;ts=5.0, receive;ts=3.0", 0.0),
        ("receive;ts=105.0, transmit;ts=103.0", 0.0),
        ("receive;ts=103.0, transmit;ts=203.0", 0.0),
        ("receive;ts=nan, transmit;ts=5.0", 0.0),
        ("receive;ts=1e999, transmit;ts=1e999", 0.0),
        ("receive;ts=-, transmit;ts=.", 0.0),
        ("receive;ts=, transmit;ts=", 0.0),
        ("transmit;ts=5.0, receive;ts=3.0", 0.0),
        ("", 0.0),
        ("9" * 100_000, 0.0),
    ],
)
def test_a_clock_is_compared_by_both_ways_of_an_exchange(told: str, ahead: float) -> None:
    """Sent at 101 and answered at 105; what makes no sense is no difference."""
    assert clock_ahead(told, 101.0, 105.0) == ahead


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 1000])
def test_the_event_is_taken_out_wherever_the_stream_is_cut(size: int) -> None:
    """All other bytes pass as they are, and the event's are kept for who wants them."""
    stream = b'data: {"choices":[{"text":"trtllm.perf"}]}\n\ndata: [DONE]\n\n'
    event = EVENT + b'{"Server-Timing":"server_queue;dur=1.000000","x":1}\n\n'
    performance = Performance({"generation": LegTimes("http://a", 0.0)})
    request = Request(CHAT_COMPLETIONS, Payload(b"", {}), True, None, performance)
    engine = TrtllmEngine()
    editor = EventEditor(engine.concern, partial(engine.edit, request, None))
    whole = stream + event
    passed = [editor.push(whole[start : start + size]) for start in range(0, len(whole), size)]
    assert b"".join(passed) + editor.close(Outcome("completed")) == stream
    assert performance.legs["generation"].told == {"server-timing": "server_queue;dur=1.000000"}


def test_an_event_that_is_cut_off_is_taken_out_too() -> None:
    """A client would take half of it for a piece of the answer."""
    engine, request = TrtllmEngine(), Request(CHAT_COMPLETIONS, Payload(b"", {}), True)
    editor = EventEditor(engine.concern, partial(engine.edit, request, None))
    assert editor.push(b"data: [DONE]\n\n" + EVENT + b'{"Server') == b"data: [DONE]\n\n"
    assert editor.close(Outcome("completed")) == b""


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"null", b"\xff", b'"x"', b'{"Server-Timing": 1}', b"{}"])
def test_an_event_that_makes_no_sense_is_left_out(data: bytes) -> None:
    """And nothing fails for it."""
    performance = Performance({"generation": LegTimes("http://a", 0.0)})
    read_event(Request(CHAT_COMPLETIONS, Payload(b"", {}), True, None, performance), data)
    assert performance.legs["generation"].told == {}
    read_event(Request(CHAT_COMPLETIONS, Payload(b"", {}), True), data)
