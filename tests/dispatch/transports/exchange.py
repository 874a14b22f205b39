"""One request through a client, and all that came of it."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from attrs import frozen

from plugins.dispatch.client import Call, Client, Fault, Limits, Response

PATIENT = Limits(connect=10.0, read=10.0, total=20.0)

lean_only = pytest.mark.parametrize("transport", ["lean"])
"""What aiohttp does not do."""

on_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
"""What needs a `clock`."""


def pair_up(name: str, values: Iterable[Any], lean: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by both transports and some values, those of `lean` for lean alone."""
    lean, kept = [*lean], [*values]
    pairs = [("aiohttp", value) for value in kept if value not in lean] + [("lean", value) for value in kept]
    return pytest.mark.parametrize(("transport", name), pairs)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


def call(url: str, method: str = "POST", body: bytes = b"{}", **fields: Any) -> Call:
    """A request; `headers` and `limits` may be given."""
    return Call(method, url, fields.get("headers", {}), body, fields.get("limits", PATIENT))


def framed(*chunks: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def sized(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer with a length."""
    fields = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, fields, len(body), body)


@frozen
class Got:
    """What came of a request; without an answer, `status` is 0."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    fault: Fault | None

    @property
    def whole(self) -> tuple[int, bytes]:
        """Status and body of an answer that did not break."""
        assert self.fault is None, self.fault.detail
        return self.status, self.body


async def fetch(client: Client, request: Call, *, fresh: bool = False) -> Got:
    """Send a request and read what comes, to the end or until it breaks."""
    try:
        response = await client.send(request, fresh=fresh)
    except Fault as fault:
        return Got(0, {}, b"", fault)
    try:
        return await read(response)
    finally:
        response.close()


async def read(response: Response) -> Got:
    """The rest of an answer."""
    parts = []
    try:
        while chunk := await response.chunk():
            parts.append(chunk)
    except Fault as fault:
        return Got(response.status, response.headers, b"".join(parts), fault)
    return Got(response.status, response.headers, b"".join(parts), None)


async def turns(count: int) -> None:
    """Let the event loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)
