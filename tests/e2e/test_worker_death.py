"""A worker that is killed in mid-stream costs one stream, told so in-band, and nothing else."""

import json
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.programs import Program, kernel, pools, stub, until

BODY = {"model": "stub", "messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 200, "stream": True}


def test_a_stream_whose_worker_is_killed_ends_with_an_error_event(tmp_path: Path) -> None:
    """The client gets whole events and then an error; counters are right, and the other worker serves on."""
    words = ("--engine", "openai", "--token-delay", "0.02")
    with stub(*words) as first, stub(*words) as second, kernel(tmp_path, pools(first[1], second[1])) as served:
        until(lambda: len(served.logged("worker.up")) == 2)
        events: list[str] = []
        victim = None
        with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=BODY, timeout=30) as answer:
            lines = answer.iter_lines()
            for line in lines:
                if line.startswith("data: "):
                    events.append(line.removeprefix("data: "))
                if len(events) == 3 and victim is None:
                    victim, survivor = _victim(first, second)
                    victim[0].kill()
        parsed = [json.loads(event) for event in events]

        assert all("error" not in event for event in parsed[:-1])
        assert parsed[-1]["error"]["type"] == "server_error"
        assert "http" not in parsed[-1]["error"]["message"]

        whole = BODY | {"stream": False, "max_tokens": 2}
        for _ in range(4):
            assert httpx.post(f"{served.url}/v1/chat/completions", json=whole, timeout=30).status_code == 200
        assert served.metric('kernel_requests_total{endpoint="chat_completions",model="stub",status="200"}') == 5
        assert served.metric('kernel_errors_total{endpoint="chat_completions",error="worker",model="stub"}') == 1
        assert served.metric('kernel_reservations{model="stub",role="generation"}') == 0
        assert served.metric('kernel_requests_in_flight{endpoint="chat_completions"}') == 0
        assert served.metric('kernel_workers_up{model="stub",role="generation"}') == 1
        workers = {worker for line in served.logged("request.finished")[1:] for worker in line["workers"]}
        assert workers == {survivor[1]}
        assert served.program.stop() == 0


Worker = tuple[Program, str]


def _victim(first: Worker, second: Worker) -> tuple[Worker, Worker]:
    """The worker that runs the stream, and the other one."""
    state = httpx.get(f"{first[1]}/_stub/state").json()
    return (first, second) if state["running"] else (second, first)


def test_the_sdk_raises_an_error_for_a_stream_that_broke(tmp_path: Path) -> None:
    """The openai SDK gives the tokens so far and then raises APIError with the message of the event."""
    with stub("--engine", "openai", "--token-delay", "0.02") as worker, kernel(tmp_path, pools(worker[1])) as served:
        until(lambda: len(served.logged("worker.up")) == 1)
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(**BODY)  # type: ignore[call-overload]
            seen = [next(stream), next(stream)]
            worker[0].kill()
            with pytest.raises(openai.APIError, match="broke before the answer was complete"):
                seen.extend(stream)

        assert len(seen) >= 2


def test_a_worker_that_comes_back_is_used_again(tmp_path: Path) -> None:
    """With no worker left the answer is 503 with Retry-After; when one is back, requests reach it."""
    body = BODY | {"stream": False, "max_tokens": 2}
    with stub("--engine", "openai") as first, kernel(tmp_path, pools(first[1])) as served:
        until(lambda: len(served.logged("worker.up")) == 1)
        first[0].kill()
        refused = httpx.post(f"{served.url}/v1/chat/completions", json=body)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{served.url}/health").status_code == 503

        with stub("--engine", "openai", "--port", first[1].rpartition(":")[2]):
            until(lambda: httpx.get(f"{served.url}/health").status_code == 200)
            assert httpx.post(f"{served.url}/v1/chat/completions", json=body).status_code == 200
