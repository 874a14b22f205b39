"""The client of the fault matrix: one request over a connection of its own, and what came of it."""

import asyncio
from typing import Any, Final

import orjson
from attrs import define, field

from tests.host.wire import Answer, parse_answers, request
from tests.matrix.setups import APIS, FIELDS, MODEL

ANSWER_SECONDS: Final = 20.0

Asked = tuple[str, bool]
"""An API, and whether the answer is to be streamed."""


def body_of(asked: Asked) -> bytes:
    """The body of a request; its answer has nine tokens."""
    api, stream = asked
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return orjson.dumps({"model": MODEL, **FIELDS[api], "max_tokens": 9, **options})


@define(eq=False)
class Client:
    """A connection on which one request was sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    data: bytearray = field(factory=bytearray)

    @classmethod
    async def ask(cls, port: int, asked: Asked) -> "Client":
        """Connect and send."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(request(APIS[asked[0]], body_of(asked), "connection: close"))
        return client

    async def read_until(self, mark: bytes, times: int = 1) -> None:
        """Read until something has come so many times."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while self.data.count(mark) < times:
                part = await self.reader.read(65536)
                assert part, bytes(self.data)
                self.data += part

    async def finish(self) -> Answer | None:
        """Read to the end of the connection; None for one that ends without an answer."""
        async with asyncio.timeout(ANSWER_SECONDS):
            self.data += await self.reader.read()
        self.leave()
        answers = parse_answers(bytes(self.data))
        assert len(answers) <= 1, answers
        return answers[0] if answers else None

    def leave(self) -> None:
        """Hang up."""
        self.writer.close()


def show(answer: Answer | None, asked: Asked, expected: str) -> str:
    """What a client can tell of an answer: `ok`, a status with its code, or a stream's error after its status."""
    if answer is None:
        return "nothing"
    if answer.headers["content-type"].startswith("text/event-stream"):
        return _show_stream(answer, expected) if asked[1] else "a stream that nobody wanted"
    data = orjson.loads(answer.body)
    if answer.status != 200:
        return f"{answer.status} {_show_error(data, answer.body)}".strip()
    return _show_text(text_of([data]), expected) if not asked[1] else "no stream"


def text_of(parts: list[Any]) -> str:
    """The text of an answer or of its chunks."""
    text = ""
    for choice in (choice for part in parts for choice in part["choices"]):
        said = choice.get("delta", choice.get("message"))
        text += choice["text"] if said is None else said.get("content") or ""
    return text


def _show_stream(answer: Answer, expected: str) -> str:
    *frames, end = answer.body.split(b"\n\n")
    assert end == b"", answer.body
    marks = [frame.removeprefix(b"data: ") for frame in frames]
    done = marks[-1:] == [b"[DONE]"]
    parts = [orjson.loads(mark) for mark in marks if mark != b"[DONE]"]
    errors = [part for part in parts if "error" in part]
    if not errors:
        return _show_text(text_of(parts), expected) if done else f"{answer.status}, cut"
    assert errors == parts[-1:], "something came after an error"
    return f"{answer.status}, then {_show_error(errors[0], marks[-1]) or 'an error'}"


def _show_text(text: str, expected: str) -> str:
    return "ok" if text == expected else f"wrong text {text!r}"


def _show_error(data: Any, raw: bytes) -> str:
    """The code of an error in OpenAI's shape; one that is a number, or none, says nothing that the status does not."""
    assert data.keys() == {"error"}, raw
    assert {"message", "type", "code"} <= data["error"].keys(), raw
    for secret in (b"127.0.0.1", b"http://", b"kv_transfer", b"bootstrap", b"opaque"):
        assert secret not in raw, raw
    code = data["error"]["code"]
    return code if isinstance(code, str) else ""
