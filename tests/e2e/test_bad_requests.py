"""Bad bytes over a real connection get a clear 4xx in the API's envelope, and the server serves on."""

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.programs import Kernel, kernel, pools, stub, until

GOOD = {"model": "stub", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
PATH = "/v1/chat/completions"
SHORT = "  parse_request: {config: {body_timeout_seconds: 0.5}}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with one worker, impatient with slow bodies."""
    folder = tmp_path_factory.mktemp("bad")
    with stub("--engine", "openai") as worker, kernel(folder, pools(worker[1], more=SHORT)) as started:
        until(lambda: len(started.logged("worker.up")) == 1)
        yield started
        assert started.program.stop() == 0
        assert not started.logged("plugin.failed")


def send_raw(served: Kernel, data: bytes, *, half_close: bool = False) -> tuple[int, dict[str, object]]:
    """Send bytes, read to the end of the connection; gives the status and the JSON body."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)


def head(length: int, *more: str) -> bytes:
    """A request's head."""
    lines = [f"POST {PATH} HTTP/1.1", "Host: kernel", f"Content-Length: {length}", *more, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"", None),
        (b"[]", None),
        (b'"text"', None),
        (b"\xff\xfe", None),
        (b'{"model": NaN}', None),
        (b'{"model":"\\ud800","messages":[]}', None),
        (b"[" * 5000, None),
        (json.dumps({"messages": GOOD["messages"]}).encode(), "model"),
        (json.dumps(GOOD | {"model": 7}).encode(), "model"),
        (json.dumps({"model": "stub"}).encode(), "messages"),
        (json.dumps(GOOD | {"messages": "hi"}).encode(), "messages"),
        (json.dumps(GOOD | {"stream": "yes"}).encode(), "stream"),
        (json.dumps(GOOD | {"max_tokens": 10**40}).encode(), "max_tokens"),
        (json.dumps(GOOD | {"stream_options": {"include_usage": True}}).encode(), "stream_options"),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_field(served: Kernel, body: bytes, param: str | None) -> None:
    """Every malformed or mistyped body is the client's fault, told in OpenAI's error object."""
    answer = httpx.post(served.url + PATH, content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["param"] == param
    assert httpx.post(served.url + PATH, json=GOOD).status_code == 200


def test_a_body_over_the_limit_is_a_413_and_closes_the_connection(served: Kernel) -> None:
    """Eleven megabytes are refused by their announced length, before they are sent."""
    status, body = send_raw(served, head(11_000_000) + b"x" * 1000)

    assert status == 413
    assert body["error"]["code"] == "body_too_large"  # type: ignore[index]


def test_a_chunked_body_over_the_limit_is_a_413(served: Kernel) -> None:
    """A body without a length is refused as soon as it is too long."""

    def parts() -> Iterator[bytes]:
        for _ in range(11):
            yield b"x" * 1_000_000

    try:
        answer = httpx.post(served.url + PATH, content=parts())
    except httpx.WriteError:
        return  # refused while it was still being sent, and the answer was lost with the connection
    assert answer.status_code == 413


def test_a_body_that_stops_half_way_is_a_408(served: Kernel) -> None:
    """A client that sends no more within the time limit is told so."""
    status, body = send_raw(served, head(1000) + b'{"model":')

    assert status == 408
    assert "did not arrive" in str(body["error"])


def test_a_body_that_is_cut_short_is_a_400(served: Kernel) -> None:
    """A client that closes its half of the connection in the middle is told so."""
    status, body = send_raw(served, head(1000) + b'{"model":', half_close=True)

    assert status == 400
    assert "ended before its announced length" in str(body["error"])


def test_two_content_lengths_are_a_400_in_the_envelope(served: Kernel) -> None:
    """What no HTTP parser should guess at is refused, and nothing after it is taken for a request."""
    body = json.dumps(GOOD).encode()

    status, answer = send_raw(served, head(len(body), f"Content-Length: {len(body) + 1}") + body)

    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"  # type: ignore[index]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", PATH, 405), ("POST", "/v1/nothing", 404)])
def test_wrong_addresses_are_answered_in_the_envelope(served: Kernel, method: str, path: str, status: int) -> None:
    """An unknown path is a 404 and a wrong method a 405, both as error objects."""
    answer = httpx.request(method, served.url + path)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]
