"""The promise of `parse_request`: a valid body is at hand, any other is the client's 400, and repeats nothing."""

import gzip
from typing import Any

import orjson
import pytest

from kernel import Endpoint, Rejection
from kernel.testing import build_exchange, run_chain
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.parse_request import ParseRequest
from plugins.slots import BODY_SECONDS, MODEL, PAYLOAD, STREAM, InvalidRequest
from tests.plugins.support import chat, counting

pytestmark = pytest.mark.anyio

HEAD = b'{"model":"m","messages":[{"role":"user","content":"'
TAIL = b'"}]}'


async def refused(raw: bytes, plugin: ParseRequest | None = None, **options: Any) -> Rejection:
    """The rejection of a body that is not a valid request; nothing is left in the slots."""
    exchange = build_exchange(CHAT_COMPLETIONS, body=raw, **options)
    with pytest.raises(Rejection) as raised:
        await run_chain([plugin or ParseRequest()], exchange)
    assert PAYLOAD not in exchange
    return raised.value


@pytest.mark.parametrize(
    ("endpoint", "data"), [(CHAT_COMPLETIONS, chat()), (COMPLETIONS, {"model": "m", "prompt": "x"})]
)
async def test_valid_body_fills_the_slots(endpoint: Endpoint, data: dict[str, Any]) -> None:
    """Payload, model and stream are there, the bytes are the client's own, and nothing is counted."""
    raw = b" " + orjson.dumps(data | {"custom": {"x": 1}}) + b"\n"
    exchange = build_exchange(endpoint, body=raw)

    with counting() as changes:
        await run_chain([ParseRequest()], exchange)

    assert exchange[PAYLOAD].data == data | {"custom": {"x": 1}}
    assert exchange[PAYLOAD].encode() is raw
    assert exchange[MODEL] == "m"
    assert exchange[STREAM] is False
    assert exchange[BODY_SECONDS] >= 0
    assert changes == {}


@pytest.mark.parametrize(("value", "expected"), [(True, True), (False, False), (None, False)])
async def test_stream_is_a_boolean(value: bool | None, expected: bool) -> None:
    """A stream that is null is none."""
    exchange = build_exchange(CHAT_COMPLETIONS, body=orjson.dumps(chat(stream=value)))

    await run_chain([ParseRequest()], exchange)

    assert exchange[STREAM] is expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"  \r\n",
        b"{",
        HEAD,
        HEAD + TAIL + b"}",
        HEAD + TAIL * 2,
        b"'secret'",
        b"null",
        b"true",
        b"7",
        b'"secret"',
        b"[]",
        b'[{"model":"secret"}]',
        b"\xef\xbb\xbf" + HEAD + TAIL,
        (HEAD + TAIL).decode().encode("utf-16"),
        HEAD + b"\xff\xfe" + TAIL,
        HEAD + b"\\ud800 secret" + TAIL,
        HEAD + b"\\udc00" + TAIL,
        HEAD + b"\xed\xa0\x80" + TAIL,
        HEAD + b"\x00" + TAIL,
        HEAD + b"\\q" + TAIL,
        b'{"model":"m","temperature":NaN}',
        b'{"model":"m","temperature":-Infinity}',
        b'{"model":"m","temperature":1e999}',
        b'{"model":"m","temperature":01}',
        b'{"model":"m",secret:1}',
        b"[" * 100_000,
        b'{"model":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"model=secret&stream=true",
        b"\x82\xa5model\xa6secret",
        gzip.compress(HEAD + TAIL),
    ],
)
async def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    """Whatever the bytes are, the answer is a 400 that says what is wrong and repeats none of them."""
    with counting() as changes:
        rejection = await refused(raw)

    assert isinstance(rejection, InvalidRequest)
    assert (rejection.status, rejection.code) == (400, "invalid_json")
    assert rejection.message.startswith("the request body ")
    assert "secret" not in rejection.message
    assert len(rejection.message) < 200
    assert changes == {"validation_exceptions_total": 1}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty, expected a JSON object"),
        (b"[]", "not an array"),
        (b"7", "not a number"),
        (b"true", "not a boolean"),
        (b"null", "not null"),
        (b'"x"', "not a string"),
        (b'{"a" 1}', "line 1 column 6"),
    ],
)
async def test_message_helps(raw: bytes, words: str) -> None:
    """The message says what came in place of an object, or where the JSON broke."""
    assert words in (await refused(raw)).message


async def test_invalid_fields_are_counted_once() -> None:
    """A field of the wrong type is a validation exception that names the field."""
    with counting() as changes:
        rejection = await refused(orjson.dumps(chat(temperature="secret")))

    assert (rejection.status, rejection.param, rejection.code) == (400, "temperature", "invalid_type")
    assert "secret" not in rejection.message
    assert changes == {"validation_exceptions_total": 1}


async def test_last_of_duplicate_keys_counts() -> None:
    """A key given twice has its last value, and the bytes stay the client's own."""
    raw = b'{"model":"first","model":"m",' + (HEAD + TAIL).removeprefix(b'{"model":"m",')
    exchange = build_exchange(CHAT_COMPLETIONS, body=raw)

    await run_chain([ParseRequest()], exchange)

    assert exchange[MODEL] == "m"
    assert exchange[PAYLOAD].encode() == raw


async def test_json_that_is_read_but_not_written_passes() -> None:
    """Deep JSON in a field that nobody here knows goes to the worker in the client's own bytes."""
    raw = HEAD + b'"}],"custom":' + b"[" * 900 + b"]" * 900 + b"}"
    exchange = build_exchange(CHAT_COMPLETIONS, body=raw)

    await run_chain([ParseRequest()], exchange)

    assert exchange[PAYLOAD].encode() == raw
