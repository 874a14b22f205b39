"""What floors need of a client, whichever it is: an answer that comes in."""

from typing import Protocol

import aiohttp
from attrs import define, field


class Answer(Protocol):
    """A worker's answer."""

    status: int
    kind: bytes

    async def read(self) -> bytes:
        """All of the body."""
        ...

    async def read_some(self) -> bytes:
        """What of the body has come in; nothing at its end."""
        ...

    def release(self) -> None:
        """Be done with it."""


@define(eq=False)
class AiohttpAnswer:
    """An answer that aiohttp's client reads."""

    response: aiohttp.ClientResponse
    status: int = field(init=False)
    kind: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.status = self.response.status
        self.kind = self.response.headers["content-type"].encode()

    async def read(self) -> bytes:
        """All of the body."""
        return await self.response.read()

    async def read_some(self) -> bytes:
        """What of the body has come in; nothing at its end."""
        return await self.response.content.readany()

    def release(self) -> None:
        """Be done with it: what was not read to its end is closed."""
        if self.response.content.at_eof():
            self.response.release()
        else:
            self.response.close()
