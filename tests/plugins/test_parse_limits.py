"""What `parse_request` does not read: bodies that are too large, or compressed."""

from typing import Any

import pytest

from kernel import Rejection
from kernel.testing import build_exchange, run_chain
from plugins.endpoints import CHAT_COMPLETIONS, MODELS
from plugins.parse_request import ParseRequest
from plugins.slots import MODEL, PAYLOAD
from tests.plugins.support import counting

pytestmark = pytest.mark.anyio

BODY = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'


async def refused(raw: bytes, plugin: ParseRequest | None = None, **options: Any) -> Rejection:
    """The rejection of a body that is not read."""
    with pytest.raises(Rejection) as raised:
        await run_chain([plugin or ParseRequest()], build_exchange(CHAT_COMPLETIONS, body=raw, **options))
    return raised.value


async def test_limit_of_the_body() -> None:
    """A body of exactly the limit passes; one byte more is a 413, announced or not, that counts as nothing here."""
    raw = BODY
    exact = ParseRequest(max_body_bytes=len(raw))
    await run_chain([exact], build_exchange(CHAT_COMPLETIONS, body=raw))

    for headers in ([], [("content-length", str(len(raw) + 1))]):
        with counting() as changes:
            rejection = await refused(raw + b" ", exact, headers=headers)
        assert (rejection.status, rejection.code) == (413, "body_too_large")
        assert changes == {}


def test_limit_is_ten_mebibytes() -> None:
    """Without configuration a body may have 10 MiB, and a minute."""
    assert ParseRequest() == ParseRequest(max_body_bytes=10_485_760, body_timeout_seconds=60)


@pytest.mark.parametrize("fields", [{"max_body_bytes": 0}, {"body_timeout_seconds": 0}])
def test_limits_must_allow_something(fields: dict[str, Any]) -> None:
    """A limit that refuses everything is refused when the plugin is built."""
    with pytest.raises(ValueError, match="must be"):
        ParseRequest(**fields)


@pytest.mark.parametrize("encodings", [["gzip"], ["identity", "GZIP"], ["br, gzip"], [" x-secret "]])
async def test_compressed_body_is_refused_unread(encodings: list[str]) -> None:
    """A body in any encoding is a 415 that says what would do, and closes, since nothing of it was read."""
    rejection = await refused(b"\x1f\x8b", headers=[("content-encoding", encoding) for encoding in encodings])

    assert (rejection.status, rejection.code) == (415, "unsupported_encoding")
    assert dict(rejection.headers) == {"accept-encoding": "identity", "connection": "close"}
    assert "secret" not in rejection.message


@pytest.mark.parametrize("encoding", ["identity", " Identity ", ""])
async def test_identity_is_no_encoding(encoding: str) -> None:
    """A body that says that it is not encoded is read."""
    exchange = build_exchange(CHAT_COMPLETIONS, body=BODY, headers=[("content-encoding", encoding)])

    await run_chain([ParseRequest()], exchange)

    assert exchange[MODEL] == "m"


async def test_endpoint_without_a_body_is_not_read() -> None:
    """A request to another endpoint passes with empty slots."""
    exchange = build_exchange(MODELS, body=b"{")

    await run_chain([ParseRequest()], exchange)

    assert PAYLOAD not in exchange
