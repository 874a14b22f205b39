"""A client that takes nothing of its answer is dropped, and what the answer held is given back."""

from types import ModuleType

from plugins.host.protocol import patient
from tests.host.support import serving
from tests.host.wire import until

SIZE = 32 * 1024 * 1024
LIMIT = f"plugins: {{terminal: {{config: {{limit: {2 * SIZE}}}}}}}"


def post(path: str, body: bytes = b"") -> bytes:
    """A whole request."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: k\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )


def test_a_stream_that_nobody_reads_is_given_up(terminal: ModuleType) -> None:
    """It hears that its client is gone, and its connection is closed."""
    with serving(http=patient(0.05)) as served:
        client = served.client().send(post("/flood"))
        until(lambda: terminal.GONE == ["client_gone"])
        until(lambda: not served.server.server_state.connections)
        client.connection.close()


def test_a_whole_answer_that_nobody_reads_is_given_up(terminal: ModuleType) -> None:
    """What waits to be written is forgotten, although the request is over."""
    with serving(LIMIT, http=patient(0.05)) as served:
        client = served.client().send(post("/echo", bytes(SIZE)))
        until(lambda: terminal.SEEN == ["echo"])
        until(lambda: not served.server.server_state.connections)
        client.connection.close()


def test_a_client_that_reads_gets_all(terminal: ModuleType) -> None:
    """However much has to wait for it meanwhile."""
    with serving(LIMIT, http=patient(5.0)) as served:
        (answer,) = served.client().send(post("/echo", bytes(SIZE // 4))).answers()
    assert len(answer.body) == SIZE // 4
    assert terminal.SEEN == ["echo"]
