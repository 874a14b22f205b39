"""Requests that are not HTTP/1.1, and what they are answered with."""

import json

from plugins.host.head import HEAD_BYTES
from tests.host.wire import Answer, request

POST = b"POST /echo HTTP/1.1\r\nhost: test\r\n"
SMUGGLED = request("/hold", b"")

MALFORMED = {
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an unknown method": b"BREW /echo HTTP/1.1\r\nhost: test\r\n\r\n",
    "an unknown version": b"GET /echo HTTP/9.9\r\nhost: test\r\n\r\n",
    "a broken target": b"GET http://[::1 HTTP/1.1\r\nhost: test\r\n\r\n",
    "a tunnel": b"CONNECT test:80 HTTP/1.1\r\nhost: test\r\n\r\n" + SMUGGLED,
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths that differ": POST + b"content-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
    "two lengths that agree": POST + b"content-length: 4\r\ncontent-length: 4\r\n\r\nabcd",
    "length and chunks": POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a negative length": POST + b"content-length: -1\r\n\r\n" + SMUGGLED,
    "a length that is no number": POST + b"content-length: 4x\r\n\r\nabcd" + SMUGGLED,
    "an endless length": POST + b"content-length: 99999999999999999999999\r\n\r\n",
    "chunks that are not last": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "an unknown encoding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk size in no digits": POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + SMUGGLED,
    "a negative chunk size": POST + b"transfer-encoding: chunked\r\n\r\n-1\r\n" + SMUGGLED,
    "an endless chunk size": POST + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + SMUGGLED,
    "a chunk longer than its size": POST + b"transfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n" + SMUGGLED,
    "a header without colon": POST + b"nonsense\r\n\r\n",
    "a space in a header's name": POST + b"content-length : 4\r\n\r\nabcd",
    "a folded header": POST + b"x-folded: a\r\n b\r\n\r\n",
    "a NUL in a header": POST + b"x-nul: a\x00b\r\n\r\n",
    "a header line ended by CR alone": POST + b"x-cr: a\rcontent-length: 4\r\n\r\nabcd",
    "one header that is too large": POST + b"x-large: " + b"a" * HEAD_BYTES + b"\r\n\r\n",
    "headers too large together": POST + b"x-some: 0123456789\r\n" * (HEAD_BYTES // 16) + b"\r\n",
    "a target that is too large": b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nhost: test\r\n\r\n",
}


def assert_refused(answer: Answer) -> None:
    """It is our 400."""
    assert answer.status == 400
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "malformed_request")
