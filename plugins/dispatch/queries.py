"""Requests that one worker answers as a whole and for which it generates nothing: counts, embeddings, ranks."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from attrs import define, field

from kernel import BytesReply, DataReply, Exchange, Rejection, Reply
from plugins.dispatch.answers import check_head, check_relayed
from plugins.dispatch.circuit import Verdict
from plugins.dispatch.client import Call, ConnectFault, Fault, Response, StaleFault, TransportFault, read_whole
from plugins.dispatch.engine import Body
from plugins.dispatch.engines.bodies import encode, parse
from plugins.dispatch.headers import headers_for_worker, is_plain
from plugins.dispatch.job import begin
from plugins.dispatch.pool import Pool
from plugins.dispatch.prompt import pieces
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.retry import CONNECT, relief_of, verdict_of
from plugins.dispatch.service import Service
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.endpoints import COUNT_TOKENS, TOKENIZE, Api
from plugins.metrics import RETRIES, child
from plugins.slots import OFFER, PAYLOAD, SERVED, Served

ANSWER_LIMIT: Final = 256 * 1024 * 1024
"""Bytes; embeddings of many texts are large."""

_CHARACTERS_A_TOKEN: Final = 4
"""By which tokens are estimated that a client wants to know of: rather too many than too few."""

_DESCRIPTIONS: Final = ("metadata",)
"""Headers that say what the bytes are; vLLM's, of embeddings in `encoding_format: bytes`."""

_ASIDES: Final = (COUNT_TOKENS.path, TOKENIZE.path)
"""What a worker answers as well when it cannot compute any more."""

_CHAT_FIELDS: Final = ("messages", "tools", "chat_template_kwargs")
"""What of a chat its tokens depend on."""


async def answer_query(exchange: Exchange, service: Service) -> Reply:
    """Let one worker answer; it is asked once, but for connections that were never made.

    Raises:
        Rejection: 404, the workers do not have this API; 503, none can be reached; or what a worker said.
    """
    if exchange.endpoint is COUNT_TOKENS and COUNT_TOKENS.name not in service.apis:
        return await _count_otherwise(exchange, service)
    job = begin(exchange, service)
    endpoint, payload = job.request.endpoint, job.request.payload
    encodes = service.encodes
    body = Body(payload.encode()) if encodes is None else encodes.encode(payload.data)
    path = endpoint.worker_path if isinstance(endpoint, Api) else endpoint.path
    response, answer = await _Query(service, job.headers, job.served).ask(path, body)
    headers = response.traits.reply_headers(b"application/json")
    for name in _DESCRIPTIONS:
        description = response.headers.get(name)
        if description is not None and is_plain(description):
            headers.append((name.encode(), description.encode()))
    return BytesReply(answer, headers=headers)


@define(eq=False)
class _Query:
    """One question to one worker."""

    service: Service
    headers: Mapping[str, str]
    served: Served
    _tried: list[Worker] = field(factory=list, init=False)

    async def ask(self, path: str, body: Body) -> tuple[Response, bytes]:
        """Choose a worker and give what it says.

        Raises:
            Rejection: as `answer_query`.
        """
        while len(self._tried) <= self.service.retry.attempts and (taken := self._take()) is not None:
            pool, reservation = taken
            if self._tried:
                child(RETRIES, self.service.model, pool.settings.role, CONNECT).inc()
            self.served.workers.append(reservation.worker.url)
            try:
                answer = await self._attempt(pool, reservation.worker, path, body)
                reservation.release(success=path not in _ASIDES)
            except Rejection as error:
                self._conclude(pool, reservation, error)
                if not isinstance(error, ConnectFault):
                    raise
                self._tried.append(reservation.worker)
            else:
                return answer
            finally:
                reservation.release()
        what = "could be reached" if self._tried else "is ready"
        raise NoWorker(f"no worker of this model {what}", self.service.retry_seconds)

    def _conclude(self, pool: Pool, reservation: Reservation, error: Rejection) -> None:
        reservation.verdict = verdict_of(error)
        reservation.release()
        if reservation.verdict is Verdict.PRESSURE:
            pool.breakers.press(reservation.worker, relief_of(error))
        if isinstance(error, Fault) and error.worker_down:
            pool.report(reservation.worker, error)

    def _take(self) -> tuple[Pool, Reservation] | None:
        """Prompts are the business of context workers; while there are none, the others know the same."""
        for pool in map(self.service.pools.get, (Role.CONTEXT, Role.GENERATION)):
            if pool is not None and (reservation := pool.spare(self._tried)) is not None:
                return pool, reservation
        return None

    async def _attempt(self, pool: Pool, worker: Worker, path: str, body: Body) -> tuple[Response, bytes]:
        headers = {**self.headers, **pool.headers, **body.headers}
        call = Call("POST", worker.url + path, headers, body.content, self.service.patience.whole)
        self.served.attempts += 1
        try:
            response = await pool.client.send(call)
        except StaleFault as fault:
            if not self.service.retry.resend_on_stale:
                raise TransportFault(fault.detail) from fault
            self.served.attempts += 1
            response = await pool.client.send(call, fresh=True)
        try:
            await check_head(response, stream=False)
            answer = await read_whole(response, ANSWER_LIMIT)
            check_relayed(response, answer)
        finally:
            response.close()
        return response, answer


async def _count_otherwise(exchange: Exchange, service: Service) -> Reply:
    """Count tokens for a client whose workers do not: by their tokenizer, or by guess, which the answer then says."""
    served = exchange[SERVED] = Served(service.model, service.engine.name, [])
    if TOKENIZE.name in service.apis:
        try:
            body = Body(encode({"model": service.model, **_as_chat(exchange), "add_generation_prompt": True}))
            _, answer = await _Query(service, headers_for_worker(exchange), served).ask(TOKENIZE.path, body)
            count = parse(answer, "context").get("count")
        except Rejection:
            count = None  # a guess is better than an error to a client that only wants to know when to be brief
        if type(count) is int:
            return DataReply({"input_tokens": count})
    data = exchange[PAYLOAD].data
    tools = encode({"tools": data["tools"]}) if data.get("tools") else b""
    characters = sum(map(len, pieces(data))) + len(tools)
    return DataReply({"input_tokens": max(1, ceil(characters / _CHARACTERS_A_TOKEN)), "estimated": True})


def _as_chat(exchange: Exchange) -> dict[str, Any]:
    """The prompt of a messages request as that of a chat, by the plugin that translates those if there is one."""
    offer = exchange.get(OFFER)
    if offer is not None:
        data = offer.translate().data
        return {name: data[name] for name in _CHAT_FIELDS if data.get(name) is not None}
    data = exchange[PAYLOAD].data
    system = [{"role": "system", "content": _text(data["system"])}] if data.get("system") else []
    return {
        "messages": [*system, *({"role": item["role"], "content": _text(item["content"])} for item in data["messages"])]
    }


def _text(content: Any) -> str:
    """What a message says in words; of what is called or answered, the JSON, and nothing of a file."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict) and "source" not in part]
    texts = (part.get("text") for part in parts)
    return "\n".join(
        text if isinstance(text, str) else encode(part).decode() for part, text in zip(parts, texts, strict=True)
    )
