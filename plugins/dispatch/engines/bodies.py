"""JSON bodies: written anew, or with members put behind those that the client sent."""

from collections.abc import Iterable, Mapping
from json import JSONDecoder
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kernel import Rejection
from plugins.dispatch.client import MalformedFault

_DECODER: Final = JSONDecoder()


def encode(data: Mapping[str, Any]) -> bytes:
    """The bytes of a body.

    Raises:
        Rejection: 400, the client's JSON is nested more deeply than it can be written again.
    """
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError as error:
        raise Rejection(400, "the request body is nested too deeply", "invalid_body") from error


def append(body: bytes, members: Iterable[tuple[str, bytes]]) -> bytes:
    """A JSON object with further members, whose values are given as they are to be written.

    All that the client wrote stays as it is, its numbers and the order of its members included.
    """
    added = b"".join(b',"%s":%s' % (name.encode(), value) for name, value in members)
    return body.rstrip()[:-1] + added + b"}" if added else body


def raw_member(document: bytes, name: str, value: object) -> bytes:
    """The text of a member somewhere in a document whose value is `value`: its numbers are not read and written.

    A number that fits no machine word would come back as another one.
    """
    text, key = document.decode(), f'"{name}"'
    start = text.find(key)
    while start >= 0:
        rest = text[start + len(key) :].lstrip()
        if rest.startswith(":"):
            rest = rest[1:].lstrip()
            try:
                _, end = _DECODER.raw_decode(rest)
            except (ValueError, RecursionError):
                break
            found = rest[:end]
            if orjson.loads(found) == value:
                return found.encode()
        start = text.find(key, start + 1)
    return orjson.dumps(value)


def parse(answer: bytes, worker: str) -> dict[str, Any]:
    """A worker's answer.

    Raises:
        MalformedFault: 502, it is no JSON object.
    """
    try:
        data = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise MalformedFault(str(error), f"the {worker} worker's answer is not JSON") from None
    if not isinstance(data, dict):
        raise MalformedFault(f"it is a {type(data).__name__}", f"the {worker} worker's answer is not a JSON object")
    return data


def host_of(url: str) -> str:
    """The host of a URL, one of IPv6 in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def count_prompts(prompt: object) -> int:
    """How many prompts a completion asks for."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1
