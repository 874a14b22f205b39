"""JSON bodies: written anew, or with members put behind those that the client sent."""

from collections.abc import Mapping
from functools import lru_cache
from json import JSONDecoder
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kernel import Rejection
from plugins.dispatch.client import MalformedFault

_DECODER: Final = JSONDecoder()
_NOTHING: Final = b"{}"
_NUMBERS: Final = b"0123456789,"
_NO_NUMBERS: Final = b"[]"
_STAND_IN: Final = "\x00numbers"
_WRITTEN_STAND_IN: Final = orjson.dumps(_STAND_IN)


def encode(data: Mapping[str, Any]) -> bytes:
    """The bytes of a body.

    Raises:
        Rejection: 400, the client's JSON is nested more deeply than it can be written again.
    """
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError as error:
        raise Rejection(400, "the request body is nested too deeply", "invalid_body") from error


def append(body: bytes, members: bytes) -> bytes:
    """A JSON object with the members of another one behind its own.

    All that the client wrote stays as it is, its numbers and the order of its members included.
    """
    return body if members == _NOTHING else b"".join((body.rstrip()[:-1], b",", members[1:]))


def raw_member(document: bytes, name: str, value: object) -> bytes:
    """The text of a member somewhere in a document whose value is `value`: its numbers are not read and written.

    A number that fits no machine word would come back as another one.

    Raises:
        MalformedFault: 502, it is nested more deeply than it can be read.
    """
    label = b'"%b":' % name.encode()
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError:
        written = b""  # nested too deeply
    if written and document.startswith(written, document.find(label) + len(label)):
        return written  # as most workers write it
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
    if not written:
        raise MalformedFault(f"{name} is nested too deeply", "the worker's answer cannot be used")
    return written


def parse(answer: bytes, worker: str) -> dict[str, Any]:
    """A worker's answer.

    Raises:
        MalformedFault: 502, it is no JSON object.
    """
    try:
        data: dict[str, Any] = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise MalformedFault(str(error), f"the {worker} worker's answer is not JSON") from None
    if type(data) is not dict:
        raise MalformedFault(f"it is a {type(data).__name__}", f"the {worker} worker's answer is not a JSON object")
    return data


def parse_around(name: str, answer: bytes, worker: str) -> dict[str, Any]:
    """A worker's answer, whose member `name` stays as it came if it is a list with numbers and without blanks.

    A prompt's token ids are handed over and not looked at; to read and to write them takes longer than all the rest.

    Raises:
        MalformedFault: 502, it is no JSON object.
    """
    label = b'"%b":' % name.encode()
    found = answer.find(label + b"[")
    start = found + len(label)
    end = answer.find(b"]", start) + 1
    numbers = answer[start:end] if found >= 0 else b""
    gaps = b",," in numbers or b"[," in numbers or b",]" in numbers or b"[]" in numbers
    if not gaps and numbers.translate(None, _NUMBERS) == _NO_NUMBERS:
        data = parse(b"".join((answer[:start], _WRITTEN_STAND_IN, answer[end:])), worker)
        if data.get(name) == _STAND_IN:
            data[name] = orjson.Fragment(numbers)
            return data
    return parse(answer, worker)


@lru_cache(maxsize=1024)
def host_of(url: str) -> str:
    """The host of a URL, one of IPv6 in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def count_prompts(prompt: object) -> int:
    """How many prompts a completion asks for."""
    if type(prompt) is list and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1
