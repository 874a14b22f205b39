"""What clients of Responses and Messages get when a pair loses its workers: in mid-stream, and afterwards."""

from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.programs import kernel, stub, until
from tests.plugins.streams import split

MESSAGES = [{"role": "user", "content": "Count"}]
BODIES: dict[str, dict[str, object]] = {
    "/v1/responses": {"model": "m", "input": "Count", "max_output_tokens": 400},
    "/v1/messages": {"model": "m", "messages": MESSAGES, "max_tokens": 400},
}


def check_broken(path: str, body: bytes) -> None:
    """Check that a stream ends in the terminal error of its dialect, and in nothing that looks like a clean end."""
    events = split(body)
    assert b"127.0.0.1" not in body
    assert b"[DONE]" not in body
    match path:
        case "/v1/responses":
            numbers = [data["sequence_number"] for _, data in events]
            assert numbers == [*range(len(events))]
            assert [name for name, _ in events[-2:]] == [b"error", b"response.failed"]
            assert b"response.completed" not in {name for name, _ in events}
        case _:
            assert events[-1][0] == b"error"
            assert events[-1][1]["type"] == "error"
            assert b"message_stop" not in {name for name, _ in events}


def check_missing(path: str, answer: httpx.Response) -> None:
    """Check that an answer says in its dialect that no worker is there, and when to come back."""
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    told = answer.json()
    if path == "/v1/messages":
        assert (told["type"], told["error"]["type"]) == ("error", "overloaded_error")
    else:
        assert told["error"]["code"] == "no_worker_ready"


@pytest.mark.parametrize("path", BODIES)
def test_a_generation_worker_that_dies_in_mid_stream(tmp_path: Path, path: str) -> None:
    """The stream ends in an error; with no worker left, the next request is told so before any byte of a stream."""
    words = ("--engine", "vllm", "--model", "m", "--token-delay", "0.02", "--role")
    with ExitStack() as stack:
        context = stack.enter_context(stub(*words, "context"))[1]
        worker, generation = stack.enter_context(stub(*words, "generation"))
        legs = f"context: {{workers: ['{context}']}}, generation: {{workers: ['{generation}']}}"
        health = "health: {interval_seconds: 0.2, failures: 1}"
        text = (
            f"plugins:\n  dispatch:\n    config:\n      {health}\n      pools: [{{model: m, engine: vllm, {legs}}}]\n"
        )
        served = stack.enter_context(kernel(tmp_path, text))
        until(lambda: len(served.logged("worker.up")) == 2)

        body = b""
        with httpx.stream("POST", served.url + path, json=BODIES[path] | {"stream": True}, timeout=60) as answer:
            assert answer.status_code == 200
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body.split(b"\n\n")) > 8 and worker.process.poll() is None:
                    worker.kill()

        check_broken(path, body)
        until(lambda: len(served.logged("worker.down")) == 1)
        for stream in (True, False):
            check_missing(path, httpx.post(served.url + path, json=BODIES[path] | {"stream": stream}, timeout=60))
        assert served.program.stop() == 0
        assert not served.logged("plugin.failed")
