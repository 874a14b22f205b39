"""What workers answer where nothing goes wrong."""

from typing import Final

import aiohttp

from plugins.dispatch.embedded.stub import run_stub
from tests.matrix.client import Asked, body_of
from tests.matrix.setups import APIS, MODEL
from tests.stub.pairs import text_of

_known: Final[dict[tuple[str, str], str]] = {}


async def expected_text(engine: str, asked: Asked) -> str:
    """The text that a worker gives which serves whole requests; it is the same streamed or not.

    One that lacks the API is asked for a chat, as the kernel asks it.
    """
    api = asked[0]
    if (engine, api) not in _known:
        async with run_stub(engine, model=MODEL) as stub, aiohttp.ClientSession() as session:
            status, answer = await _ask(session, stub.url, api)
            if status == 404:
                status, answer = await _ask(session, stub.url, "chat")
            assert status == 200
            _known[engine, api] = text_of(answer)
    return _known[engine, api]


async def _ask(session: aiohttp.ClientSession, url: str, api: str) -> tuple[int, bytes]:
    headers = {"content-type": "application/json"}
    async with session.post(url + APIS[api], data=body_of((api, False)), headers=headers) as response:
        return response.status, await response.read()
