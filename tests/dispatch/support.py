"""Driving dispatch alone: its configuration, a request with the slots that outer plugins fill, and its loads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from attrs import define

from kernel import Endpoint, Exchange, Rejection, Reply
from kernel.testing import Written, build_exchange, read_reply, run_chain
from plugins.dispatch.config import HealthConfig, ModelConfig, RoleConfig
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.pool import Pool
from plugins.dispatch.retry import RetryConfig
from plugins.encode_reply import EncodeReply
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import MODEL, PAYLOAD, STREAM, TIMING, Payload, Timing

QUIET = HealthConfig(interval_seconds=60)
"""Probes at the start and after a fault only, so that nothing else happens behind a test."""

ONCE = RetryConfig(attempts=0)
"""What a failure is when nothing is tried again."""

MESSAGES = [{"role": "user", "content": "Say hello"}]


@asynccontextmanager
async def running(*models: ModelConfig, **settings: Any) -> AsyncIterator[Dispatch]:
    """Dispatch, started; when it ends, no load may be left on any worker."""
    dispatch = Dispatch(models, **{"health": QUIET, **settings})
    await dispatch.start()
    try:
        yield dispatch
        for service in dispatch._state.services.values():
            await service.errands.finish()
        assert loads(dispatch) == [0] * len(loads(dispatch))
    finally:
        await dispatch.stop()


def single(*urls: str, **fields: Any) -> ModelConfig:
    """A model whose workers serve whole requests."""
    return ModelConfig("m", workers=urls, **fields)


def relay(context: Iterable[str], generation: Iterable[str], **engine: Any) -> ModelConfig:
    """A model of TensorRT-LLM workers."""
    return ModelConfig(
        "m",
        engine=TrtllmEngine(**engine),
        context=RoleConfig(tuple(context)),
        generation=RoleConfig(tuple(generation)),
    )


def pools(dispatch: Dispatch) -> list[Pool]:
    """The pools that run."""
    return [pool for pool, _ in dispatch._state.uses]


def loads(dispatch: Dispatch) -> list[int]:
    """The load on every worker."""
    return [worker.load for pool in pools(dispatch) for worker in pool.workers]


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds that nothing tells of."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0)


def body_of(**fields: Any) -> bytes:
    """The body of a chat request; its spacing is one that no encoder here would make."""
    return orjson.dumps({"model": "m", "messages": MESSAGES, **fields}).replace(b'"model":', b'"model" :  ')


def exchange_of(
    raw: bytes, *, endpoint: Endpoint = CHAT_COMPLETIONS, headers: Iterable[tuple[str, str]] = ()
) -> Exchange:
    """A request as `parse_request` and `request_timing` leave it."""
    exchange = build_exchange(endpoint, body=raw, headers=headers)
    data = orjson.loads(raw)
    exchange[PAYLOAD] = Payload(raw, data)
    exchange[MODEL] = data["model"]
    exchange[STREAM] = bool(data.get("stream"))
    exchange[TIMING] = Timing(exchange.arrived)
    return exchange


@define
class Answer:
    """What became of a request: a reply as its client got it, or a rejection."""

    exchange: Exchange
    reply: Reply | None = None
    written: Written | None = None
    rejection: Rejection | None = None

    @property
    def body(self) -> bytes:
        """The whole body."""
        assert self.written is not None, self.rejection
        return self.written.body

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return orjson.loads(self.body)

    @property
    def error(self) -> Rejection:
        """The rejection."""
        assert self.rejection is not None, self.reply
        return self.rejection


async def ask(dispatch: Dispatch, exchange: Exchange) -> Answer:
    """Run a request through dispatch alone, read its answer to the end, and release it."""
    answer = Answer(exchange)
    try:
        with exchange.interruptible():
            answer.reply = await run_chain([EncodeReply(), dispatch], exchange)
        answer.written = await read_reply(answer.reply, exchange)
    except Rejection as rejection:
        answer.rejection = rejection
    finally:
        await exchange.release()
    return answer


def told(error: Rejection) -> tuple[int, str | None]:
    """Status and code."""
    return error.status, error.code
