"""Broken plugins behind a real server: what cannot be sent, and what goes past the kernel."""

import json
from typing import Any

import httpx
import pytest

from kernel import build_app
from tests.kernel.support import Shelf, serve
from tests.zoo.habitat import Habitat

pytestmark = pytest.mark.anyio

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
PATH = "/v1/chat/completions"


async def bite(shelf: Shelf, animal: str) -> httpx.Response:
    """The answer to a request at which the animal bites; the next one on a new connection is served."""
    runtime = Habitat(shelf, f"callers:{animal}").runtime()
    async with serve(build_app(runtime)) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.post(PATH, content=BODY, headers={"x-bite": "yes"})
        after = await client.post(PATH, content=BODY)
        assert (after.status_code, after.json()) == (200, {"answer": True})
        assert runtime.serving.exchanges == set()
    return answer


@pytest.mark.parametrize("animal", ["HEADER_INJECTION", "HEADER_NAME_INJECTION", "TEXT_HEADER", "BAD_STATUS"])
async def test_an_answer_that_cannot_be_sent_is_a_500(shelf: Shelf, logged: list[Any], animal: str) -> None:
    """Nothing was sent yet, so the client gets an answer, and nothing of the bad one."""
    answer = await bite(shelf, animal)
    assert answer.status_code == 500
    assert "set-cookie" not in answer.headers
    assert len([line for line in logged if line["event"] == "plugin.failed"]) == 1


async def test_a_second_length_does_not_confuse_the_client(shelf: Shelf, logged: list[Any]) -> None:
    """A reply has one length, that of its body."""
    answer = await bite(shelf, "SECOND_LENGTH")
    assert answer.headers.get_list("content-length") == [str(len(answer.content))]
    assert logged is not None


async def test_a_huge_header_is_sent(shelf: Shelf) -> None:
    """Its size is for server and client to judge; the server serves on."""
    runtime = Habitat(shelf, "callers:HUGE_HEADER").runtime()
    async with serve(build_app(runtime)) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(PATH, content=BODY, headers={"x-bite": "yes"})
        assert (await client.post(PATH, content=BODY)).status_code == 200


@pytest.mark.parametrize("animal", ["RAISES_BASE", "CANCELS_ITSELF", "CLAIMS_CLIENT_GONE"])
async def test_what_goes_past_the_kernel_is_the_servers_500(shelf: Shelf, animal: str) -> None:
    """And ends neither the server nor its other requests."""
    answer = await bite(shelf, animal)
    assert answer.status_code == 500
    assert "secret" not in answer.text
