"""KV-cache events over real ZeroMQ sockets: what is heard, missed, replayed, begun anew, and left behind."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from attrs import define

from plugins.dispatch.config import ModelConfig
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.zmq_sockets import MESSAGE_LIMIT
from plugins.dispatch.policy import Site
from plugins.dispatch.roster import Roster
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.worker import Role, Worker
from plugins.endpoints import COMPLETIONS
from tests.dispatch.policies.publisher import Publisher, publishing
from tests.dispatch.policies.support import completion, roster_of, send
from tests.dispatch.policies.test_kv_wire import removed, stored
from tests.dispatch.scripted import Seen, answer_ok, scripted
from tests.dispatch.support import ask, exchange_of, pools, running, until

pytestmark = pytest.mark.anyio

BLOCKS = [[number] * 16 for number in range(10)]


def flat(*numbers: int) -> list[int]:
    """The token ids of blocks."""
    return [token for number in numbers for token in BLOCKS[number]]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once what broke."""
    monkeypatch.setattr("plugins.dispatch.policies.zmq_source.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("plugins.dispatch.policies.zmq_source.REOPEN_SECONDS", 0.01)


@define(eq=False)
class Running:
    """A policy that listens, and its roster."""

    policy: KvEvents
    roster: Roster

    def known(self, index: int = 0) -> int:
        """How many blocks are known of a worker."""
        return len(self.policy.holding(self.roster.at(index)))

    def turn(self, index: int, *, up: bool) -> None:
        """Have a worker go up or down."""
        self.roster.at(index).up = up
        self.roster.refresh(self.roster.at(index))


@asynccontextmanager
async def listening(policy: KvEvents, *urls: str) -> AsyncIterator[Running]:
    """A policy that has been started before its workers came up; afterwards no task of it is left."""
    roster = roster_of(0, policy=policy)
    client = AiohttpClient(3.0)
    policy.start(Site("m", Role.GENERATION, roster, client, {}))
    for index, url in enumerate(urls or ("http://127.0.0.1:1",)):
        roster.add(Worker(url, index, up=True))
    try:
        yield Running(policy, roster)
    finally:
        await policy.stop()
        await client.close()
    files = {str(getattr(task.get_coro(), "cr_code", None)) for task in asyncio.all_tasks()}
    assert not [name for name in files if "plugins/dispatch" in name and "tests" not in name]


def at(publisher: Publisher, *, replay: bool = True) -> KvEvents:
    """A policy that listens to this publisher."""
    live, old = (address.replace("127.0.0.1", "{host}") for address in (publisher.live, publisher.old))
    return KvEvents(endpoint=live, replay_endpoint=old if replay else None)


def sources(*publishers: Publisher) -> Callable[[Seen], Any]:
    """A worker that names its streams as vLLM does."""

    async def answer(seen: Seen) -> None:
        if "/kv_event_sources" not in seen.line:
            await answer_ok(seen)
            return
        named = {
            str(rank): {"endpoint": publisher.live.replace("127.0.0.1", "*"), "replay_endpoint": publisher.old}
            for rank, publisher in enumerate(publishers)
        }
        await seen.answer(orjson.dumps(named))

    return answer


async def test_what_a_worker_tells_is_known() -> None:
    """As long as it has not told otherwise."""
    async with publishing() as publisher, listening(at(publisher)) as policy:
        await publisher.subscribed.wait()
        await publisher.send(stored([1, 2, 3], flat(0, 1, 2), 16))
        await until(lambda: policy.known() == 3)
        policy.roster.add(Worker("http://127.0.0.1:2", 1))
        policy.turn(1, up=True)
        await until(lambda: policy.known(1) == 3)  # it has the same address, and is told the same
        await publisher.send(removed([2, 3]))
        await until(lambda: policy.known(0) == policy.known(1) == 1)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True}), ("asyncio", {})])
async def test_messages_that_were_lost_are_replayed(anyio_backend: Any) -> None:
    """Only those that are missing are asked for; the loop that serves in production does it too."""
    async with publishing() as publisher, listening(at(publisher)) as policy:
        await publisher.subscribed.wait()
        await publisher.send(stored([1], flat(0), 16))
        await until(lambda: policy.known() == 1)
        await publisher.send(stored([2], flat(1), 16, 1), lose=True)
        await publisher.send(removed([1]), lose=True)
        await publisher.send(stored([3], flat(2), 16, 2))
        await until(lambda: policy.known() == 2)
        assert publisher.asked == [0, 1]


async def test_what_was_sent_before_is_known() -> None:
    """A frontend that starts later than its workers asks for everything that they have kept."""
    async with publishing() as publisher:
        for number in range(5):
            await publisher.send(stored([number], flat(number), 16))
        async with listening(at(publisher)) as policy:
            await until(lambda: policy.known() == 5)


async def test_without_a_replay_a_gap_makes_all_be_forgotten() -> None:
    """What comes then counts."""
    async with publishing() as publisher, listening(at(publisher, replay=False)) as policy:
        await publisher.subscribed.wait()
        await publisher.send(stored([1, 2, 3], flat(0, 1, 2), 16))
        await until(lambda: policy.known() == 3)
        await publisher.send(stored([4], flat(3), 16), lose=True)
        await publisher.send(stored([5], flat(4), 16))
        await until(lambda: policy.known() == 1)


async def test_garbage_does_not_end_the_listening(logged: list[Any]) -> None:
    """Bytes of no meaning, and frames that are too large to be taken in."""
    async with publishing() as publisher, listening(at(publisher)) as policy:
        await publisher.subscribed.wait()
        await publisher.send(stored([1], flat(0), 16))
        await publisher.raw(b"x", b"y")
        await publisher.raw(b"z")
        await publisher.raw(*[b"w"] * 20)
        await publisher.send(stored([2], flat(1), 16))
        await until(lambda: policy.known() == 2)
        publisher.subscribed.clear()
        await publisher.raw((9).to_bytes(8), b"x" * (MESSAGE_LIMIT + 1))
        await publisher.subscribed.wait()
        await publisher.send(stored([3], flat(2), 16))
        await until(lambda: policy.known() == 3)
    assert "kv_events.garbage" in {line["event"] for line in logged}


async def test_a_restarted_worker_begins_with_nothing() -> None:
    """On the same addresses, with numbers from 0."""
    async with publishing() as publisher, listening(at(publisher)) as policy:
        await publisher.subscribed.wait()
        await publisher.send(stored([1, 2, 3], flat(0, 1, 2), 16))
        await until(lambda: policy.known() == 3)
        live, old = publisher.live, publisher.old
        await publisher.close()
        policy.turn(0, up=False)
        publisher.number, publisher.kept, publisher.time = 0, [], 10.0
        publisher.subscribed.clear()
        await publisher.open(live=live, old=old)
        policy.turn(0, up=True)
        await publisher.subscribed.wait()
        await publisher.send(stored([9], flat(9), 16))
        await until(lambda: policy.known() == 1)


async def test_workers_name_their_streams() -> None:
    """One for each rank, at the worker's own host; two workers are told apart, and prompts go to the right one."""
    async with (
        publishing() as one,
        publishing(rank=1) as two,
        publishing() as other,
        scripted(sources(one, two)) as first,
        scripted(sources(other)) as second,
        listening(KvEvents(), first.url, second.url) as policy,
    ):
        for publisher in (one, two, other):
            await publisher.subscribed.wait()
        await one.send(stored([1, 2], flat(0, 1), 16))
        await two.send(stored([3], flat(5), 16))
        await other.send(stored([1, 2], flat(3, 4), 16))
        await until(lambda: (policy.known(0), policy.known(1)) == (3, 2))
        for numbers, index in (((3, 4), 1), ((0, 1), 0), ((5,), 0)):
            facts = completion([*flat(*numbers), 99, 98])
            assert policy.policy.prepare(facts) is None
            held = send(policy.policy, policy.roster, facts)
            assert held.worker.index == index
            assert facts.match is not None
            assert facts.match.cached == 16 * len(numbers)
            held.finish()


async def test_a_worker_that_names_other_streams_is_followed_there() -> None:
    """It was restarted and has taken other ports; nothing of before is believed."""
    publishers: list[Publisher] = []

    async def answer(seen: Seen) -> None:
        await sources(*publishers)(seen)

    async with publishing() as old, publishing() as new, scripted(answer) as worker:
        publishers[:] = [old]
        async with listening(KvEvents(), worker.url) as policy:
            await old.subscribed.wait()
            await old.send(stored([1, 2], flat(0, 1), 16))
            await until(lambda: policy.known() == 2)
            publishers[:] = [new]
            policy.turn(0, up=False)
            policy.turn(0, up=True)
            await new.subscribed.wait()
            await until(lambda: policy.known() == 0)
            await new.send(stored([1], flat(3), 16))
            await until(lambda: policy.known() == 1)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'[{"endpoint": 3}]', b'{"0": {"endpoint": "ipc:///x"}}'])
async def test_a_worker_that_names_no_streams_is_asked_again(body: bytes, logged: list[Any]) -> None:
    """It may have been too early; until then it is routed by load."""
    answers = 0
    async with publishing() as publisher:

        async def answer(seen: Seen) -> None:
            nonlocal answers
            answers += 1
            if answers < 3:
                await seen.answer(body)
            else:
                await sources(publisher)(seen)

        async with scripted(answer) as worker, listening(KvEvents(), worker.url):
            await publisher.subscribed.wait()
    assert [line["event"] for line in logged] == ["kv_events.no_address"] * 2


async def test_workers_may_connect_to_one_address() -> None:
    """They are told apart by topic and rank; nobody knows who sends under another topic."""
    with socket.socket() as free:
        free.bind(("127.83.0.1", 0))  # an address of loopback that nobody else takes ports of
        address = f"tcp://127.83.0.1:{free.getsockname()[1]}"
    urls = ("http://127.0.0.1:9211", "http://127.0.0.1:9212")
    async with (
        listening(KvEvents(bind=address), *urls) as policy,
        publishing(b"kv@127.0.0.1:9211@m", connect=address) as one,
        publishing(b"kv@127.0.0.1:9212@m", connect=address) as two,
        publishing(b"kv@127.0.0.1:9213@m", connect=address) as nobody,
    ):
        for publisher in (one, two, nobody):
            await publisher.subscribed.wait()
        await nobody.send(stored([1], flat(0), 16))
        await two.send(stored([1], flat(0), 16))
        await one.raw(b"garbage")
        await one.send(stored([1, 2], flat(0, 1), 16))
        await until(lambda: (policy.known(0), policy.known(1)) == (2, 1))
        await one.send(lose=True)
        await one.send(stored([4], flat(4), 16))
        await until(lambda: policy.known(0) == 1)
        policy.roster.remove(policy.roster.at(0))
        await one.send(stored([5], flat(5), 16))
        await two.send(stored([6], flat(6), 16))
        await until(lambda: policy.known(1) == 2)


async def test_a_worker_that_is_gone_is_listened_to_no_longer() -> None:
    """What was known of it is forgotten."""
    async with publishing() as publisher, listening(at(publisher)) as policy:
        await publisher.send(stored([1], flat(0), 16))
        await publisher.subscribed.wait()
        await until(lambda: policy.known() == 1)
        policy.roster.remove(policy.roster.at(0))
        assert policy.policy._state.index.holders == {}
        assert policy.policy._state.index.sizes == {}


async def test_requests_go_through_dispatch_to_where_their_prompt_is() -> None:
    """The whole way: workers come up, say where their events are, and a prompt finds its blocks."""
    async with (
        publishing() as one,
        publishing() as two,
        scripted(sources(one)) as first,
        scripted(sources(two)) as second,
        running(ModelConfig("m", workers=(first.url, second.url), policy=KvEvents())) as dispatch,
    ):
        for publisher in (one, two):
            await publisher.subscribed.wait()
        await two.send(stored([1, 2], flat(0, 1), 16))
        policy: Any = pools(dispatch)[0]._policy
        await until(lambda: len(policy.holding(pools(dispatch)[0].workers[1])) == 2)
        for _ in range(3):
            body = orjson.dumps({"model": "m", "prompt": [*flat(0, 1), 5]})
            await ask(dispatch, exchange_of(body, endpoint=COMPLETIONS))
        assert [len([seen for seen in worker.seen if "/v1" in seen.line]) for worker in (first, second)] == [0, 3]
