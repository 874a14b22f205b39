"""LMDeploy's DistServe: the context worker keeps its KV cache, the generation worker migrates it to itself."""

import re
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Final, Literal

import orjson
from attrs import frozen

from kernel import Rejection
from plugins.dispatch.abilities import Step
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Body, Handoff, Notice, Reading, Request
from plugins.dispatch.engines.bodies import append, count_prompts, encode, parse
from plugins.dispatch.engines.lmdeploy_links import connect, disconnect
from plugins.dispatch.plan import SERIAL_RELAY, Plan
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS

_PROTOCOLS: Final[Mapping[str, int]] = {"tcp": 1, "rdma": 2, "nvlink": 3}
_CACHE: Final = ("cache_block_ids", "remote_token_ids", "cache_session_id")
_LEAK: Final = re.compile(rb'"(?:cache_block_ids|remote_token_ids|cache_session_id|migration_request)"')
_DROPPED: Final = ("stream_options", "min_new_tokens", "min_tokens")
_SESSION: Final = "session_id"
"""Names a session at a worker. From a client it could be another one's, and end it."""


@frozen
class LmdeployEngine:
    """One leg after the other, between workers that the kernel connects when they first need it.

    `protocol`: how KV caches are moved; LMDeploy itself moves them by `rdma` alone so far. `link_type`: of RDMA.
    """

    name: ClassVar[str] = "lmdeploy"
    plan: ClassVar[Plan] = SERIAL_RELAY
    concern: ClassVar["re.Pattern[bytes]"] = _LEAK

    protocol: Literal["tcp", "rdma", "nvlink"] = "rdma"
    link_type: Literal["RoCE", "IB"] = "RoCE"

    def check(self, request: Request, /) -> None:
        """Decline what a migration cannot carry: it is of one sequence.

        Raises:
            Rejection: 400, the request asks for several.
        """
        data = request.payload.data
        if data.get("n") not in (None, 1):
            raise Rejection(400, "more than one choice is not supported by this model", param="n")
        if count_prompts(data.get("prompt")) > 1:
            raise Rejection(400, "several prompts in one request are not supported by this model", param="prompt")

    def connect(self, context: str, generation: str, /) -> Generator[Step, Any, None]:
        """The calls that connect two workers."""
        yield from connect(context, generation, _PROTOCOLS[self.protocol], self.link_type)

    def disconnect(self, context: str, generation: str, /) -> Generator[Step, Any, None]:
        """The calls that end a connection."""
        yield from disconnect(context, generation)

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """One token for the context worker, which keeps its cache; for the generation worker where that is."""
        if role is Role.CONTEXT:
            return Body(encode(_context_data(request)))
        payload = request.payload
        raw = payload.encode()
        if _SESSION in payload.data:
            raw = encode({name: value for name, value in payload.data.items() if name != _SESSION})
        if handoff is None or not handoff.complete:
            return Body(raw)
        where = {"protocol": _PROTOCOLS[self.protocol], "remote_engine_id": _origin(handoff), **handoff.fields}
        return Body(append(raw, orjson.dumps({"migration_request": {**where, "is_dummy_prefill": False}})))

    def read(self, role: Role, _request: Request, answer: bytes, _handoff: Handoff | None = None, /) -> Reading:
        """Where the context worker keeps its cache; the generation worker's answer with what the client may see."""
        if role is Role.CONTEXT:
            return _read_context(parse(answer, "context"))
        return orjson.dumps(_clean(parse(answer, "generation"))) if _LEAK.search(answer) else answer

    def edit(self, _request: Request, _handoff: Handoff | None, _name: bytes, data: bytes, /) -> bytes:
        """An event of a stream with what the client may see."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return data
        return orjson.dumps(_clean(value)) if isinstance(value, dict) else data

    def free(self, handoff: Handoff, /) -> Notice:
        """Tell the context worker that nobody comes for a cache."""
        session = handoff.fields["remote_session_id"]
        body = {"remote_engine_id": _origin(handoff), "remote_session_id": session}
        return Notice("/distserve/free_cache", orjson.dumps(body))


def _context_data(request: Request) -> dict[str, Any]:
    data = {name: value for name, value in request.payload.data.items() if name not in _DROPPED and name != _SESSION}
    data |= {"stream": False, "max_tokens": 1, "with_cache": True, "preserve_cache": True}
    if request.endpoint is CHAT_COMPLETIONS:
        data["max_completion_tokens"] = 1
    return data


def _read_context(data: dict[str, Any]) -> Handoff:
    """The handoff of a context worker's answer; newer releases name the session by itself, older ones by the id.

    A worker that kept nothing hands nothing over.

    Raises:
        MalformedFault: 502, it kept a cache and does not say enough to find it.
    """
    blocks, tokens = data.get("cache_block_ids"), data.get("remote_token_ids")
    if not blocks:
        return Handoff({}, complete=False)
    session = _number(data.get("cache_session_id", data.get("id")))
    if session is None or not _are_numbers(blocks) or not tokens or not _are_numbers(tokens):
        raise MalformedFault(f"session {session}, tokens {tokens!r:.60}", "the context worker's handoff is incomplete")
    return Handoff({"remote_session_id": session, "remote_block_ids": blocks, "remote_token_id": tokens[-1]})


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value, re.ASCII) else None


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _origin(handoff: Handoff) -> str:
    if handoff.origin is None:
        raise TypeError("a handoff of LMDeploy's is good only with the worker that made it")
    return handoff.origin.url


def _clean(data: dict[str, Any]) -> dict[str, Any]:
    """An answer without what is for workers; the fields that say nothing are part of this engine's shape."""
    return {name: value for name, value in data.items() if value is None or name not in (*_CACHE, "migration_request")}


ENGINE = LmdeployEngine
