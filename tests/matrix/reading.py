"""What a client can tell of an answer, in each API's own dialect."""

from typing import Any, Final

import orjson

from tests.host.wire import Answer
from tests.matrix.client import Asked
from tests.matrix.setups import OPENAI
from tests.stub.pairs import frames, text_of

SECRETS: Final = (b"127.0.0.1", b'transfer_params":{', b"bootstrap", b"opaque")
ENDS: Final = {
    "responses": ("response.completed", "response.incomplete"),
    "messages": ("message_stop",),
}
FAILURES: Final = ("error", "response.failed")


def show(answer: Answer | None, asked: Asked, expected: str) -> str:
    """What a client can tell: `ok`, a status with its code, or a stream's error after its status."""
    if answer is None:
        return "nothing"
    for secret in SECRETS:
        assert secret not in answer.body, answer.body
    if answer.headers["content-type"].startswith("text/event-stream"):
        return _show_stream(answer, asked[0], expected) if asked[1] else "a stream that nobody wanted"
    if answer.status != 200:
        return f"{answer.status} {_code(orjson.loads(answer.body), asked[0])}".strip()
    return _show_text(answer.body, expected) if not asked[1] else "no stream"


def told(answer: str, api: str) -> str:
    """An answer of the table as an API tells it: errors of Messages have no code, nor have those in named events."""
    if api in OPENAI or answer in ("ok", "nothing"):
        return answer
    if answer.startswith("200, then"):
        return "200, then an error"
    return answer if api == "responses" else answer.partition(" ")[0]


def _show_stream(answer: Answer, api: str, expected: str) -> str:
    events = frames(answer.body)
    assert answer.body.endswith(b"\n\n"), answer.body
    errors = [data for name, data in events if name in FAILURES or (isinstance(data, dict) and data.get("error"))]
    if errors:
        rest = [data for _, data in events if data != "[DONE]"]
        assert errors == rest[-len(errors) :], "something came after an error"
        code = _code(errors[0], api) if api in OPENAI else ""
        return f"{answer.status}, then {code or 'an error'}"
    last = events[-1][1] == "[DONE]" if api in OPENAI else events[-1][0] in ENDS[api]
    return _show_text(answer.body, expected) if last else f"{answer.status}, cut"


def _show_text(body: bytes, expected: str) -> str:
    text = text_of(body)
    return "ok" if text == expected else f"wrong text {text!r}"


def _code(data: Any, api: str) -> str:
    """The code of an error in its API's shape; one that is a number, or none, says no more than the status."""
    if api == "messages":
        assert (data.keys() - {"request_id"}, data["type"]) == ({"type", "error"}, "error"), data
        assert data["error"].keys() == {"type", "message"}, data
        return ""
    assert data.keys() == {"error"}, data
    assert {"message", "type", "code"} <= data["error"].keys(), data
    code = data["error"]["code"]
    return code if isinstance(code, str) else ""
