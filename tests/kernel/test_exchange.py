"""The exchange: slots, headers, request ids, streams that it keeps track of."""

import asyncio
import re
import time
from typing import Any

import pytest

from kernel import NEVER_BEGUN, Endpoint, Outcome, Slot, StreamReply
from kernel.testing import build_exchange, stream_of
from tests.kernel.support import turn, until

pytestmark = pytest.mark.anyio

NAME, OTHER = Slot[str]("name"), Slot[str]("name")


async def test_a_slot_keeps_what_was_put_in() -> None:
    """Until something else is put in."""
    exchange = build_exchange()
    assert NAME not in exchange
    exchange[NAME] = "one"
    exchange[NAME] = "two"
    assert exchange[NAME] == "two"
    assert exchange.get(NAME) == "two"
    assert NAME in exchange


async def test_an_empty_slot_says_which() -> None:
    """By the name that is for people; asked politely it is None."""
    exchange = build_exchange()
    with pytest.raises(LookupError, match="slot 'name' is empty"):
        exchange[NAME]
    assert exchange.get(NAME) is None


async def test_none_can_be_put_in() -> None:
    """A slot that holds None is not empty."""
    slot = Slot[str | None]("maybe")
    exchange = build_exchange()
    exchange[slot] = None
    assert slot in exchange
    assert exchange[slot] is None


async def test_a_slots_identity_is_the_object() -> None:
    """A second slot of the same name is another, and other exchanges have their own."""
    exchange = build_exchange()
    exchange[NAME] = "one"
    assert OTHER not in exchange
    assert NAME not in build_exchange()


async def test_headers_are_found_in_any_case() -> None:
    """As the protocol has it."""
    exchange = build_exchange(headers=[("X-Tenant", "a"), ("x-tenant", "b")])
    assert exchange.headers["X-TENANT"] == "a"
    assert exchange.headers.getlist("x-tenant") == ["a", "b"]
    assert "x-other" not in exchange.headers


@pytest.mark.parametrize("given", ["a", "req-1", "A.b_c:d/e+f=g@h-i", "x" * 128])
async def test_a_usable_request_id_is_taken_over(given: str) -> None:
    """So that one id follows a request through several services."""
    assert build_exchange(headers=[("x-request-id", given)]).id == given


@pytest.mark.parametrize(
    "given", ["", " ", "two words", "x" * 129, "new\nline", "a\r\nset-cookie: b=c", "caf\u00e9", "a;b", "\x00"]
)
async def test_an_unusable_request_id_is_replaced(given: str) -> None:
    """It goes into logs and headers, and must not be able to forge either."""
    assert re.fullmatch("[0-9a-f]{32}", build_exchange(headers=[("x-request-id", given)]).id)


async def test_the_first_usable_request_id_is_taken() -> None:
    """A bad one in front of it changes nothing."""
    headers = [("x-request-id", "not usable"), ("x-request-id", "first"), ("x-request-id", "second")]
    assert build_exchange(headers=headers).id == "first"


async def test_new_request_ids_differ() -> None:
    """They are long enough not to meet."""
    assert len({build_exchange().id for _ in range(1000)}) == 1000


async def test_the_endpoint_is_the_object_that_was_declared() -> None:
    """Two endpoints of the same address are two."""
    endpoint = Endpoint("test", "/test")
    assert build_exchange(endpoint).endpoint is endpoint
    assert endpoint != Endpoint("test", "/test")
    assert endpoint.method == "POST"


async def test_the_time_of_arrival_is_that_of_the_monotonic_clock() -> None:
    """Comparable with what plugins note."""
    before = time.monotonic()
    assert before <= build_exchange().arrived <= time.monotonic()


async def test_a_stream_that_nobody_writes_hears_so_at_the_release() -> None:
    """Once, also where it was dropped for another reply."""
    exchange = build_exchange()
    outcomes: list[Outcome] = []
    stream = StreamReply(stream_of(b"x"))
    stream.attach(end=outcomes.append)
    exchange.track(stream, "maker", fail_open=False)
    exchange.track(stream, "outer", fail_open=False)
    await exchange.release()
    await exchange.release()
    assert [outcome.name for outcome in outcomes] == [NEVER_BEGUN]
    assert outcomes[0].error is None


async def test_a_released_exchange_watches_its_client_no_more() -> None:
    """Its watcher ends with it."""
    exchange = build_exchange()
    await exchange.read(10)
    before = len(asyncio.all_tasks())
    exchange.watch()
    await until(lambda: len(asyncio.all_tasks()) == before + 1)
    await exchange.release()
    await turn()
    assert len(asyncio.all_tasks()) == before


async def test_an_end_that_raises_at_the_release_is_logged(logged: list[Any]) -> None:
    """With its plugin; the others hear the outcome, and what is held is given back."""
    exchange = build_exchange()
    heard: list[Any] = []
    stream = StreamReply(stream_of(b"x"))
    stream.attach(end=lambda _: 1 / 0)  # type: ignore[arg-type]
    stream.attach(end=heard.append)
    exchange.track(stream, "maker", fail_open=False)
    exchange.resources.push(lambda: heard.append("released"))
    await exchange.release()
    assert len(heard) == 2
    assert [(line["event"], line["plugin"], line["at"]) for line in logged] == [
        ("plugin.failed", "maker", "stream end")
    ]
