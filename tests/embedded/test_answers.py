"""Checks that an embedded worker serves a real model: answers, streams, tools, many clients at once."""

import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import httpx
import pytest

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
}


def ask(url: str, question: str, **fields: Any) -> httpx.Response:
    """Ask for a chat completion that is the same every time."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 40, "temperature": 0, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def prompt(url: str, messages: list[dict[str, Any]], **fields: Any) -> str:
    """Return what the model would read."""
    answer = httpx.post(f"{url}/apply-template", json={"messages": messages, **fields}, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["prompt"])


def test_a_question_gets_an_answer(worker_url: str) -> None:
    """A chat completion holds text of the model, under the name that the worker was given."""
    answer = ask(worker_url, "Say hello").json()
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["model"] == "smollm2"


def test_a_stream_ends_with_done(worker_url: str) -> None:
    """A streamed chat completion brings its text in several events and ends with the terminal one."""
    answer = ask(worker_url, "Say hello", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert len([delta for delta in deltas if delta]) > 1


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_is_called(worker_url: str, choice: str) -> None:
    """Given a tool, the model calls it with the argument of the question."""
    answer = ask(worker_url, "What is the weather in Paris?", tools=[TOOL], tool_choice=choice).json()
    (choice_made,) = answer["choices"]
    assert choice_made["finish_reason"] == "tool_calls"
    (call,) = choice_made["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


def test_a_streamed_tool_call_is_whole(worker_url: str) -> None:
    """The pieces of a streamed tool call add up to its arguments."""
    answer = ask(worker_url, "What is the weather in Paris?", tools=[TOOL], stream=True)
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    pieces = [call["function"].get("arguments", "") for delta in deltas for call in delta.get("tool_calls", [])]
    assert json.loads("".join(pieces)) == {"city": "Paris"}


def test_the_client_has_the_say_over_the_system_prompt(worker_url: str) -> None:
    """A leading system message takes the place of the model's own."""
    text = prompt(worker_url, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_a_tool_loop_is_rendered(worker_url: str) -> None:
    """Calls, their results in one turn, text in parts and absent text all reach the model."""
    text = prompt(
        worker_url,
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Weather of "}, {"type": "text", "text": "Rome?"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
        ],
        tools=[TOOL],
    )
    assert "<|im_start|>user\nWeather of Rome?<|im_end|>\n" in text
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert f"<|im_start|>assistant\n{call}\n{call}<|im_end|>\n" in text
    results = "<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
    assert text.endswith(f"<|im_start|>user\n{results}<|im_end|>\n<|im_start|>assistant\n")


def test_health_answers_while_requests_wait(worker_url: str) -> None:
    """A worker with far more requests than slots still says that it is healthy, and serves them all."""
    with ThreadPoolExecutor(32) as clients:
        answers = [clients.submit(ask, worker_url, "Say hello", max_tokens=16, stream=True) for _ in range(32)]
        next(as_completed(answers))
        health = httpx.get(f"{worker_url}/health", timeout=60)
        waiting = sum(not answer.done() for answer in answers)
        assert all(answer.result().text.endswith("data: [DONE]\n\n") for answer in answers)
    assert health.status_code == 200
    assert waiting > 8
