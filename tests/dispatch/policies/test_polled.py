"""TensorRT-LLM's events are asked for after each request, once at a time, and a worker's blocks have to fit."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from attrs import define, field

from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.kv_index import Holding, KvIndex
from plugins.dispatch.policies.kv_state import PINNED, REMOVED, STORED
from plugins.dispatch.policies.kv_wire import WireError
from plugins.dispatch.policies.trtllm_events import PolledLedger, ServerInfo, judge, read_info
from plugins.dispatch.policies.trtllm_hashes import BlockKeys
from plugins.dispatch.policy import Match, Site
from plugins.dispatch.roster import Roster
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.worker import Role, Worker
from tests.dispatch.policies.support import Held, completion, roster_of, send
from tests.dispatch.scripted import ScriptedWorker, Seen, scripted
from tests.dispatch.support import until

pytestmark = pytest.mark.anyio

PROMPT = list(range(100))


@define(eq=False)
class Server:
    """A worker's two routes: what it says of itself, and the events that it gives once."""

    info: Any = field(factory=lambda: {"tokens_per_block": 32, "kv_cache_hash_algo": "v1"})
    events: list[Any] = field(factory=list)
    polls: int = 0
    infos: int = 0
    gate: asyncio.Event | None = None
    raw: bytes | None = None

    async def __call__(self, seen: Seen) -> None:
        """Answer."""
        if seen.line.startswith("GET /server_info "):
            self.infos += 1
            await seen.answer(orjson.dumps(self.info))
        elif seen.line.startswith("POST /kv_cache_events "):
            self.polls += 1
            if self.gate is not None:
                await self.gate.wait()
            events, self.events = self.events, []
            await seen.answer(orjson.dumps(events) if self.raw is None else self.raw)
        else:
            await seen.answer(b"", "404 Not Found")


@define(eq=False)
class Running:
    """A policy that asks, its roster, and what was sent."""

    policy: KvEvents
    roster: Roster

    def send(self, tokens: list[int], but: tuple[Worker, ...] = ()) -> Held:
        """Send a prompt."""
        facts = completion(tokens)
        assert self.policy.prepare(facts) is None
        return send(self.policy, self.roster, facts, but)

    def known(self, index: int = 0) -> int:
        """How many blocks are known of a worker."""
        return len(self.policy.holding(self.roster.at(index)))

    def turn(self, index: int, *, up: bool) -> None:
        """Have a worker go up or down."""
        self.roster.at(index).up = up
        self.roster.refresh(self.roster.at(index))


@asynccontextmanager
async def asking(policy: KvEvents, *workers: ScriptedWorker) -> AsyncIterator[Running]:
    """A policy whose workers have come up; afterwards no task of it is left."""
    roster = roster_of(0, policy=policy)
    client = AiohttpClient(3.0)
    policy.start(Site("m", Role.GENERATION, roster, client, {"authorization": "Bearer k"}))
    for index, worker in enumerate(workers):
        roster.add(Worker(worker.url, index, up=True))
    try:
        yield Running(policy, roster)
    finally:
        await policy.stop()
        await client.close()
    assert not [task for task in asyncio.all_tasks() if "polled_source" in str(task.get_coro())]


async def handshakes(running: Running) -> None:
    """Wait until every worker has said who it is."""
    source: Any = running.policy._state.source
    await until(lambda: all(server.handshake.done() for server in source._servers.values()))


async def idle(running: Running) -> None:
    """Wait until nobody is asked."""
    source: Any = running.policy._state.source
    await until(lambda: all(server.poll is None or server.poll.done() for server in source._servers.values()))


async def test_what_was_routed_is_taken_for_cached_and_events_correct_it() -> None:
    """At once when a request ends well; what the worker then says counts."""
    server = Server()
    async with scripted(server) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        running.send(PROMPT).finish()
        assert running.known() == 4
        keys = BlockKeys().make(PROMPT, 32)
        server.events = [
            {"event_id": 0, "data": {"type": "created", "num_blocks_per_cache_level": [10]}},
            {"event_id": 1, "data": {"type": "removed", "block_hashes": keys[2:]}},
            {"event_id": 2, "type": "stored", "blocks": [{"block_hash": 5}, {"block_hash": 6}]},
        ]
        await idle(running)
        running.send([1]).finish(success=False)
        await idle(running)
        assert running.known() == 4
        assert set(keys[:2]) | {5, 6} == running.policy._state.index.holders.keys()
        assert [seen.header["authorization"] for seen in worker.seen] == ["Bearer k"] * 3


@define(eq=False)
class Told:
    """What other processes are told."""

    said: list[tuple[int, set[int]]] = field(factory=list)

    def tell(self, _worker: Worker, kind: int, numbers: Sequence[int]) -> int:
        """Write it down, as the unsigned numbers that they are."""
        self.said.append((kind, {number % (1 << 64) for number in numbers}))
        return 0

    def hear(self) -> None:
        """Nothing is ever heard."""


async def test_other_processes_are_told_what_was_sent_and_what_the_worker_says() -> None:
    """A worker tells each event once, to whichever process asks."""
    server, told, policy = Server(), Told(), KvEvents("polled", max_sessions=0)
    policy.join(told)
    keys = BlockKeys().make(PROMPT, 32)
    server.events = [
        {"event_id": 1, "data": {"type": "removed", "block_hashes": keys[2:]}},
        {"event_id": 2, "data": {"type": "stored", "blocks": [{"block_hash": 5}]}},
    ]
    async with scripted(server) as worker, asking(policy, worker) as running:
        await handshakes(running)
        running.send(PROMPT).finish()
        await idle(running)
        assert [(kind, numbers) for kind, numbers in told.said if kind != PINNED] == [
            (STORED, set(keys)),
            (STORED, {5}),
            (REMOVED, set(keys[2:])),
        ]


async def test_a_failed_request_adds_nothing() -> None:
    """Nobody knows how far it got."""
    async with scripted(Server()) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        running.send(PROMPT).finish(success=False)
        assert running.known() == 0


async def test_tracking_can_be_switched_off() -> None:
    """Then only events count."""
    policy = KvEvents("polled", track_routed_blocks=False)
    async with scripted(Server()) as worker, asking(policy, worker) as running:
        await handshakes(running)
        running.send(PROMPT).finish()
        assert running.known() == 0


async def test_a_worker_is_asked_once_at_a_time() -> None:
    """A hundred requests that end meanwhile make it be asked once more, not a hundred times."""
    server = Server(gate=asyncio.Event())
    async with scripted(server) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        held = [running.send([number]) for number in range(101)]
        held[0].finish()
        await until(lambda: server.polls == 1)
        for request in held[1:]:
            request.finish()
        assert server.gate is not None
        server.gate.set()
        await idle(running)
        assert server.polls == 2
        running.send([1]).finish()
        await idle(running)
        assert server.polls == 3


async def test_workers_do_not_wait_for_each_other() -> None:
    """One that does not answer holds up nobody else."""
    slow, quick = Server(gate=asyncio.Event()), Server()
    async with (
        scripted(slow) as one,
        scripted(quick) as two,
        asking(KvEvents("polled", max_sessions=0), one, two) as running,
    ):
        await handshakes(running)
        for _ in range(2):
            running.send([1]).finish()
        await until(lambda: (slow.polls, quick.polls) == (1, 1))
        running.send([1], (running.roster.at(0),)).finish()
        await until(lambda: quick.polls == 2)


@pytest.mark.parametrize("raw", [b"", b"{}", b"null", b"[", b"\xff"])
async def test_answers_that_are_none_do_no_harm(raw: bytes, logged: list[Any]) -> None:
    """They are logged when they begin, not for every request."""
    server = Server(raw=raw)
    async with scripted(server) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        for _ in range(5):
            running.send(PROMPT).finish()
            await idle(running)
        assert running.known() == 4
    assert [line["event"] for line in logged] == ["kv_events.no_events"]


async def test_a_worker_that_cannot_be_asked_does_no_harm(logged: list[Any]) -> None:
    """It serves requests all the same."""

    async def refuse(seen: Seen) -> None:
        await seen.answer(b"", "404 Not Found")

    async with scripted(refuse) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        for _ in range(3):
            running.send(PROMPT).finish()
            await idle(running)
        assert running.known() == 4
    assert [line["event"] for line in logged] == ["kv_events.no_info", "kv_events.no_events"]


async def test_each_workers_own_size_is_used() -> None:
    """Two workers whose blocks differ are both found."""
    one, two = Server(), Server(info={"tokens_per_block": 64, "kv_cache_hash_algo": "auto"})
    async with (
        scripted(one) as first,
        scripted(two) as second,
        asking(KvEvents("polled", max_sessions=0), first, second) as running,
    ):
        await handshakes(running)
        running.send(PROMPT, (running.roster.at(0),)).finish()
        assert running.known(1) == 2
        held = running.send([*PROMPT[:80], 7, 7])
        assert (held.worker.index, held.facts.match) == (1, Match(64, 82))
        running.send([5000] * 70, (running.roster.at(1),)).finish()
        held = running.send([5000] * 70)
        assert (held.worker.index, held.facts.match) == (0, Match(69, 70))


async def test_a_worker_whose_blocks_do_not_fit_is_not_used(monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    """Loudly; until it says something else, as after a restart."""
    monkeypatch.setattr("plugins.dispatch.policies.polled_source.RETRY_SECONDS", 0.01)
    bad, good = Server(info={"tokens_per_block": 48, "kv_cache_hash_algo": "v1"}), Server()
    policy = KvEvents("polled", tokens_per_block=32)
    async with scripted(bad) as one, scripted(good) as two, asking(policy, one, two) as running:
        await until(lambda: running.roster.members == [running.roster.at(1)])
        assert {running.send([number]).worker.index for number in range(10)} == {1}
        bad.info = {"tokens_per_block": 32, "kv_cache_hash_algo": "v1"}
        await until(lambda: len(running.roster.members) == 2)
        await handshakes(running)
    refused = [line for line in logged if line["event"] == "worker.refused"]
    assert refused
    assert "48 tokens" in refused[0]["reason"]


async def test_a_worker_that_is_refused_and_restarts_is_asked_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that drains is not heard to come up again: to give up while it is away would be to give it up for good."""
    monkeypatch.setattr("plugins.dispatch.policies.polled_source.RETRY_SECONDS", 0.01)
    server = Server(info={"tokens_per_block": 48, "kv_cache_hash_algo": "v1"})
    policy = KvEvents("polled", tokens_per_block=32)
    async with scripted(server) as worker, asking(policy, worker) as running:
        await until(lambda: running.roster.members == [])
        server.info = "starting"
        asked = server.infos
        await until(lambda: server.infos >= asked + 2)
        server.info = {"tokens_per_block": 32, "kv_cache_hash_algo": "v1"}
        await until(lambda: len(running.roster.members) == 1)


async def test_a_worker_of_another_size_that_fits_is_tracked_without_its_events() -> None:
    """Its hashes cannot be compared, what it was sent can."""
    server = Server(info={"tokens_per_block": 64, "kv_cache_hash_algo": "v1"})
    policy = KvEvents("polled", tokens_per_block=32)
    async with scripted(server) as worker, asking(policy, worker) as running:
        await handshakes(running)
        running.send(PROMPT).finish()
        await idle(running)
        assert (running.known(), server.polls) == (4, 0)


async def test_a_worker_that_comes_back_is_asked_who_it_is() -> None:
    """It may have been started with other settings."""
    server = Server()
    async with scripted(server) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        server.info = {"tokens_per_block": 16, "kv_cache_hash_algo": "v1"}
        running.turn(0, up=False)
        running.turn(0, up=True)
        await handshakes(running)
        assert (server.infos, running.policy.holding(running.roster.at(0)).size) == (2, 16)


async def test_a_worker_that_is_gone_is_asked_no_more() -> None:
    """Requests that were on it may end later."""
    server = Server(gate=asyncio.Event())
    async with scripted(server) as worker, asking(KvEvents("polled"), worker) as running:
        await handshakes(running)
        one, two = running.send(PROMPT), running.send(PROMPT)
        one.finish()
        await until(lambda: server.polls == 1)
        running.roster.remove(running.roster.at(0))
        two.finish()
        assert (running.policy._state.holdings, running.policy._state.index.holders) == ({}, {})
        await worker.until(lambda: worker.open <= 1)


@pytest.mark.parametrize(
    ("info", "wanted", "verdict"),
    [
        (ServerInfo(32, "v1"), None, "follow"),
        (ServerInfo(32, "auto"), 32, "follow"),
        (ServerInfo(None, None), 32, "follow"),
        (ServerInfo(64, "v1"), 32, "track"),
        (ServerInfo(16, "v1"), 32, "track"),
        (ServerInfo(48, "v1"), 32, "refuse"),
        (ServerInfo(32, "v2_sha256"), None, "refuse"),
        (ServerInfo(32, "v2_sha256_64"), 32, "refuse"),
    ],
)
def test_what_a_worker_says_is_judged(info: ServerInfo, wanted: int | None, verdict: str) -> None:
    """By the sizes of blocks, one of which has to be a multiple of the other, and by the hash."""
    assert judge(info, wanted)[0] == verdict


@pytest.mark.parametrize("body", [b"", b"[]", b'{"tokens_per_block": 0}', b'{"tokens_per_block": "32"}', b"\xff"])
def test_what_a_worker_says_may_be_nothing(body: bytes) -> None:
    """Then nothing is believed."""
    with pytest.raises(WireError):
        read_info(body)


def test_an_event_of_the_past_is_of_a_new_worker() -> None:
    """A number that is missing is not: another frontend has got that event."""
    ledger = PolledLedger(Holding(KvIndex(), 0, 100))
    for number, block in ((0, 10), (5, 11), (9, 12)):
        ledger.enter(orjson.dumps([{"event_id": number, "type": "stored", "blocks": [{"block_hash": block}]}]))
    assert len(ledger.holding) == 3
    ledger.enter(orjson.dumps([{"event_id": 1, "type": "stored", "blocks": [{"block_hash": 13}]}]))
    assert (len(ledger.holding), ledger.bad) == (1, 0)


def test_bad_events_are_counted_and_good_ones_entered() -> None:
    """In one and the same answer."""
    ledger = PolledLedger(Holding(KvIndex(), 0, 100))
    bad: list[Any] = [
        7, [], {}, {"type": 3}, {"data": []}, {"type": "stored"}, {"type": "stored", "blocks": [7]},
        {"type": "stored", "blocks": [{"block_hash": "x"}]}, {"type": "removed", "block_hashes": 3},
        {"type": "removed", "block_hashes": [None]}, {"type": "stored", "blocks": [], "hash_algo": "v2_sha256"},
    ]  # fmt: skip
    ledger.enter(orjson.dumps([{"type": "stored", "blocks": [{"block_hash": 1}]}, *bad, {"type": "updated"}]))
    assert (ledger.bad, len(ledger.holding)) == (len(bad), 1)
