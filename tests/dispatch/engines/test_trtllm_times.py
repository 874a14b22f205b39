"""What a client and an operator are told of the times of a request, by TensorRT-LLM's workers and the kernel."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import frozen

from kernel import Exchange
from kernel.testing import Written, read_reply, run_chain
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.encode_reply import EncodeReply
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.request_timing.plugin import RequestTiming
from plugins.slots import PERFORMANCE
from tests.dispatch.engines.pairs import ASKED, CHAT, Pair, pair_of
from tests.dispatch.support import exchange_of

pytestmark = pytest.mark.anyio

TELLS = RequestTiming(return_perf_metrics=True)

WANTED = (("x-trtllm-return-metrics", "1"),)

SKEW = 5_000.0

EVENT = b"event: trtllm.perf_metrics\ndata: "

NAMES = {"server-timing", "x-trtllm-start-end-time", "x-trtllm-step-metrics"}


@frozen
class Got:
    """What a client got."""

    written: Written
    headers: dict[str, str]

    @property
    def body(self) -> bytes:
        """The whole body."""
        return self.written.body


async def serve(pair: Pair, plugin: RequestTiming, exchange: Exchange) -> Got:
    """Run a request through the plugin and dispatch."""
    try:
        with exchange.interruptible():
            reply = await run_chain([plugin, EncodeReply(), pair.dispatch], exchange)
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        return Got(await read_reply(reply, exchange), headers)
    finally:
        await exchange.release()


def exchange_for(data: Any, endpoint: Any = CHAT_COMPLETIONS, *, wanted: bool = True, **extra: Any) -> Exchange:
    """A request, of a client that wants to know the times or does not."""
    return exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint, headers=WANTED if wanted else ())


def told_in(got: Got, stream: bool) -> dict[str, str]:
    """The metrics that the client was told, by header names in lower case."""
    if not stream:
        return {name: value for name, value in got.headers.items() if name in NAMES}
    _, found, event = got.body.partition(b"data: [DONE]\n\n")
    assert found
    assert event.startswith(EVENT)
    assert event.endswith(b"\n\n")
    assert got.written.chunks[-1].endswith(event)
    return {name.lower(): value for name, value in orjson.loads(event[len(EVENT) :]).items()}


def stamps_of(told: dict[str, str]) -> dict[str, float]:
    """The times of a request's phases."""
    return {
        name: float(value) for name, value in re.findall(r"([\w-]+);ts=(\S+?)(?:,|$)", told["x-trtllm-start-end-time"])
    }


def lines_in(folder: Path) -> list[Any]:
    """The records in the one file of a folder."""
    (file,) = folder.iterdir()
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
@pytest.mark.parametrize("schedule", ["context_first", "generation_first"])
async def test_a_client_that_asks_is_told(schedule: Any, endpoint: Any, data: Any, stream: bool) -> None:
    """In headers or behind the end of the stream: both workers under their phases, and the kernel's own."""
    async with pair_of(TrtllmEngine(schedule=schedule)) as pair:
        told = told_in(await serve(pair, TELLS, exchange_for(data, endpoint, stream=stream)), stream)
        assert told.keys() == NAMES
        names = re.findall(r"(\w+);dur=\d+\.\d{6}", told["server-timing"])
        both = [f"{phase}_{part}" for phase in ("ctx", "gen") for part in ("queue", "ttft", "e2e")]
        assert [name for name in names if name != "gen_kv_transfer"] == [*both, "disagg_queue", "disagg_ttft"]
        assert "gen_kv_transfer" in names
        assert re.search(r"ctx-step-0-forward;dur=.*gen-step-0-forward;dur=", told["x-trtllm-step-metrics"])
        assert "server" not in "".join(told.values())


@pytest.mark.parametrize("stream", [False, True])
async def test_workers_times_are_told_by_the_kernels_clock(stream: bool) -> None:
    """Theirs are more than an hour ahead."""
    async with pair_of(TrtllmEngine(), clock_skew=SKEW) as pair:
        stamps = stamps_of(told_in(await serve(pair, TELLS, exchange_for(CHAT, stream=stream)), stream))
        assert stamps.keys() == {f"{phase}-{part}" for phase in ("ctx", "gen", "disagg") for part in ("start", "end")}
        assert max(stamps.values()) - min(stamps.values()) < SKEW / 2


async def test_the_clocks_header_can_have_another_name() -> None:
    """With a name that no worker uses, times stay those of the worker's clock."""
    async with pair_of(TrtllmEngine(clock_header="x-other"), clock_skew=SKEW) as pair:
        stamps = stamps_of(told_in(await serve(pair, TELLS, exchange_for(CHAT)), stream=False))
        assert stamps["ctx-start"] - stamps["disagg-start"] > SKEW / 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tells", "wanted"), [(False, True), (True, False), (False, False)])
async def test_nobody_is_told_who_did_not_ask(tells: bool, wanted: bool, stream: bool) -> None:
    """It takes the configuration and the client; without both, workers are not asked either."""
    async with pair_of(TrtllmEngine()) as pair:
        exchange = exchange_for(CHAT, wanted=wanted, stream=stream)
        got = await serve(pair, RequestTiming(return_perf_metrics=tells), exchange)
        assert b"perf_metrics" not in got.body
        assert not stream or got.body.endswith(b"data: [DONE]\n\n")
        assert not got.headers.keys() & NAMES
        assert PERFORMANCE not in exchange
        for stub in pair.stubs:
            (received,) = [received for received in stub.state().last_requests if received.is_work]
            assert received.header("x-trtllm-return-metrics") is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_file_alone_tells_the_client_nothing(tmp_path: Path, stream: bool) -> None:
    """Workers are asked, and what they say is taken out of the answer and written down."""
    plugin = RequestTiming(perf_metrics_output_dir=str(tmp_path))
    await plugin.start()
    async with pair_of(TrtllmEngine()) as pair:
        exchange = exchange_for(CHAT, wanted=False, stream=stream)
        got = await serve(pair, plugin, exchange)
        assert b"perf_metrics" not in got.body
        assert not got.headers.keys() & NAMES
        (context, generation) = pair.stubs
        await plugin.stop()
        (line,) = lines_in(tmp_path)
        assert (line["ctx_server"], line["gen_server"], line["status"]) == (context.url, generation.url, "complete")
        times = [line["ctx_perf_metrics"], line["gen_perf_metrics"]]
        for told in times:
            stations = told["perf_metrics"]["timing_metrics"]
            wanted = ["arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"]
            assert [stations[name] for name in wanted] == sorted(stations.values())
            assert (told["perf_metrics"]["first_iter"], told["perf_metrics"]["last_iter"]) == (0, 0)
        (sent,) = [received.body for received in generation.state().last_requests if received.is_work]
        params: Any = sent["disaggregated_params"] if isinstance(sent, dict) else None
        assert line["disagg_request_id"] == params["disagg_request_id"]
        assert times[0]["request_id"] == times[1]["ctx_request_id"] == params["ctx_request_id"]
        record = exchange[PERFORMANCE].record
        assert record is not None
        assert (record["schema_version"], record["request_id"]) == (1, exchange.id)
        assert record["phases"].keys() == {"disagg", "ctx", "gen"}
