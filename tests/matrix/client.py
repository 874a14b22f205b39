"""The client of the fault matrix: one request over a connection of its own, and what came of it."""

import asyncio
from typing import Any, Final

import orjson
from attrs import define, field

from tests.host.wire import Answer, parse_answers, request
from tests.matrix.setups import APIS, FIELDS, MODEL, OPENAI

ANSWER_SECONDS: Final = 20.0

Asked = tuple[str, bool]
"""An API, and whether the answer is to be streamed."""


def body_of(asked: Asked) -> bytes:
    """The body of a request; its answer has nine tokens."""
    api, stream = asked
    options: dict[str, Any] = {"stream": True} if stream else {}
    if stream and api in OPENAI:
        options["stream_options"] = {"include_usage": True}
    limit = "max_output_tokens" if api == "responses" else "max_tokens"
    return orjson.dumps({"model": MODEL, **FIELDS[api], limit: 9, **options})


@define(eq=False)
class Client:
    """A connection on which one request was sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    data: bytearray = field(factory=bytearray)

    @classmethod
    async def ask(cls, port: int, asked: Asked, *headers: str) -> "Client":
        """Connect and send."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(request(APIS[asked[0]], body_of(asked), "connection: close", *headers))
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
