"""Which headers and fields pass between a client and a worker that serves whole requests."""

import re

import orjson
import pytest

from plugins.dispatch.engines.vllm import VllmEngine
from plugins.slots import SERVED, TRACE
from tests.dispatch.engines.pairs import CHAT, pair_of
from tests.dispatch.scripted import Seen, scripted
from tests.dispatch.streams import ODD, answer_odd
from tests.dispatch.support import ask, body_of, exchange_of, running, single

pytestmark = pytest.mark.anyio


async def test_only_headers_that_mean_something_to_a_worker_are_sent() -> None:
    """The client's credentials, cookies, proxy and internal headers end here."""
    sent = [
        ("accept", "text/event-stream"), ("traceparent", "00-a-b-01"), ("tracestate", "x=1"),
        ("anthropic-version", "2023-06-01"), ("anthropic-beta", "a-1,b-2"), ("anthropic-dangerous-x", "true"),
        ("authorization", "Bearer client"), ("cookie", "a=b"), ("user-agent", "sdk"), ("x-api-key", "k"),
        ("content-type", "text/plain"), ("x-request-id", "id-1"), ("x-forwarded-for", "1.2.3.4"),
        ("x-prefiller-host-port", "10.0.0.5:80"), ("x-override-bootstrap-host", "evil"),
        ("accept-encoding", "gzip"), ("x-stub-fault", "hang"), ("connection", "x-custom"),
    ]  # fmt: skip
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of(), headers=sent))
    got = dict(worker.seen[0].header)
    assert re.fullmatch("[0-9a-f]{32}", got.pop("x-request-id"))
    assert got == {
        "host": worker.url.removeprefix("http://"),
        "content-type": "application/json",
        "content-length": str(len(body_of())),
        "accept-encoding": "identity",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a-1,b-2",
        "traceparent": "00-a-b-01",
        "tracestate": "x=1",
    }


@pytest.mark.parametrize("sent", [[], [("x-request-id", "id-1")], [("X-Request-Id", "id 1")]])
async def test_workers_are_told_an_id_that_no_client_chose(sent: list[tuple[str, str]]) -> None:
    """They know what they hold by it, and one that a client sends twice must not be taken for the same."""
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        exchanges = [exchange_of(body_of(), headers=sent) for _ in range(2)]
        for exchange in exchanges:
            await ask(dispatch, exchange)
    told = [seen.header["x-request-id"] for seen in worker.seen]
    assert len({*told}) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in told)
    assert [exchange[SERVED].request_id for exchange in exchanges] == told


async def test_both_legs_have_one_id() -> None:
    """Older vLLM workers find what was handed over by it."""
    async with pair_of(VllmEngine()) as pair:
        await ask(pair.dispatch, exchange_of(orjson.dumps(CHAT), headers=[("x-request-id", "id-1")]))
        ids = {stub.state().last_requests[-1].header("x-request-id") for stub in pair.stubs}
    assert len(ids) == 1
    assert ids != {"id-1"}


async def test_the_trace_of_an_outer_plugin_replaces_the_clients() -> None:
    """A state that belongs to the client's own parent is not sent with another parent."""
    exchange = exchange_of(body_of(), headers=[("traceparent", "00-a-b-01"), ("tracestate", "x=1")])
    exchange[TRACE] = (("traceparent", "00-c-d-01"),)
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange)
    assert worker.seen[0].header["traceparent"] == "00-c-d-01"
    assert "tracestate" not in worker.seen[0].header


async def test_a_header_that_an_encoding_could_change_is_dropped() -> None:
    """Only printable ASCII is the same on both sides."""
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of(), headers=[("tracestate", "é"), ("accept", "a\tb")]))
    assert not {"tracestate", "accept"} & worker.seen[0].header.keys()


@pytest.mark.parametrize(
    ("values", "passed"), [(["a/b", "c/d"], "a/b"), (["a\tb", "c/d"], "c/d"), (["a\tb", "é"], None)]
)
async def test_of_a_header_that_stands_twice_one_is_sent(values: list[str], passed: str | None) -> None:
    """The first that can be; whatever else stands twice does not matter."""
    headers = [("x-other", "1"), *(("accept", value) for value in values), ("x-other", "2"), ("traceparent", "00")]
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of(), headers=headers))
    assert worker.seen[0].header.get("accept") == passed
    assert worker.seen[0].header["traceparent"] == "00"


@pytest.mark.parametrize(
    "field",
    [
        "kv_transfer_params", "disaggregated_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
        "migration_request", "with_cache", "preserve_cache",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, {"do_remote_prefill": True, "remote_host": "10.0.0.5"}])
async def test_a_client_cannot_send_a_handoff(field: str, value: object) -> None:
    """The fields by which workers find each other's memory are taken out, also where they are null."""
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of(**{field: value, "temperature": 0.5})))
    assert orjson.loads(worker.seen[0].body) == orjson.loads(body_of(temperature=0.5))


async def test_a_handoff_cannot_hide_behind_another_spelling_of_its_name() -> None:
    """What counts is what a worker's parser would find."""
    raw = body_of().replace(b"{", b'{"kv_transfer_p\\u0061rams":{"remote_host":"x"},"bootstrap_room":1,', 1)
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(raw))
    assert orjson.loads(worker.seen[0].body) == orjson.loads(body_of())


async def test_a_workers_limits_reach_the_client() -> None:
    """Headers that say what is left are the client's business."""

    async def limited(seen: Seen) -> None:
        await seen.answer(ODD, "200 OK", "x-ratelimit-remaining-tokens: 12", "retry-after: 1")

    async with scripted(limited) as worker, running(single(worker.url)) as dispatch:
        answer = await ask(dispatch, exchange_of(body_of()))
    assert answer.reply is not None
    assert (b"x-ratelimit-remaining-tokens", b"12") in answer.reply.headers


async def test_a_worker_may_send_large_headers() -> None:
    """TensorRT-LLM puts metrics of many steps into one."""

    async def verbose(seen: Seen) -> None:
        await seen.answer(ODD, "200 OK", "x-trtllm-step-metrics: " + "x" * 75_000)

    async with scripted(verbose) as worker, running(single(worker.url)) as dispatch:
        assert (await ask(dispatch, exchange_of(body_of()))).body == ODD
