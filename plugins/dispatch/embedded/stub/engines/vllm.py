"""A vLLM worker: what it refuses, and its way to an answer on each API."""

from collections.abc import Mapping
from typing import Any, Final, cast

import aiohttp
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Handler
from plugins.dispatch.embedded.stub.engines.job import Job, read_job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt, read_prompts
from plugins.dispatch.embedded.stub.engines.vllm_connector import Connector, VllmPhase
from plugins.dispatch.embedded.stub.engines.vllm_fields import ASKED, LIMITS, TABLES
from plugins.dispatch.embedded.stub.engines.vllm_metrics import vllm_metrics
from plugins.dispatch.embedded.stub.engines.vllm_mooncake import MooncakeConnector
from plugins.dispatch.embedded.stub.engines.vllm_nixl import NixlConnector
from plugins.dispatch.embedded.stub.engines.vllm_params import parse_version, wants_decode
from plugins.dispatch.embedded.stub.engines.vllm_probes import VllmProbes
from plugins.dispatch.embedded.stub.engines.vllm_rules import Fault, broken_rule, given_prompt
from plugins.dispatch.embedded.stub.engines.vllm_shapes import vllm_id, vllm_shape
from plugins.dispatch.embedded.stub.engines.vllm_storage import StorageConnector
from plugins.dispatch.embedded.stub.peer import peer_session
from plugins.dispatch.embedded.stub.settings import StubSettings

_WITH_SIDE: Final = ("nixl", "nixl-push", "mooncake")


@define(eq=False)
class VllmEngine(VllmProbes):
    """Serves any role; what it does with the KV cache of a request is its connector's business."""

    connector: Connector = field(init=False)
    session: aiohttp.ClientSession = field(init=False)

    @classmethod
    def has_side_door(cls, settings: StubSettings) -> bool:
        """Whether a worker with these settings listens on a second port, for other workers."""
        return settings.connector in _WITH_SIDE and settings.role != "generation"

    async def start(self) -> None:
        """Count from zero, and set up the connector with a name that it has not had before."""
        await super().start()
        self.version = parse_version(self.settings.engine_version)
        self.metrics = vllm_metrics(self.settings.model)
        self.session = peer_session()
        self.connector = self._make_connector()

    async def stop(self) -> None:
        """Close the way to other workers and forget what is held."""
        await super().stop()
        await self.session.close()

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those of all four APIs."""
        return {
            **super().handlers(),
            "POST /v1/responses": self.responses,
            "POST /v1/messages": self.messages,
        }

    async def completions(self, call: Call) -> None:
        """Answer a completions request."""
        await self._serve(call, apis.COMPLETIONS)

    async def chat(self, call: Call) -> None:
        """Answer a chat request."""
        await self._serve(call, apis.CHAT)

    async def responses(self, call: Call) -> None:
        """Answer a Responses request."""
        await self._serve(call, apis.RESPONSES)

    async def messages(self, call: Call) -> None:
        """Answer a messages request."""
        await self._serve(call, apis.MESSAGES)

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer another worker, or a front end that looks for this one."""
        return await self.connector.side(request, path)

    def is_context(self, body: Mapping[str, object]) -> bool:
        """Whether a body is that of a context leg."""
        return wants_decode(body)

    def leave(self, call: Call) -> None:
        """Take note that a request has ended, in whatever way."""
        self.connector.leave(call)

    async def _serve(self, call: Call, api: str) -> None:
        problems = list(TABLES[api].problems(call.body))
        if problems:
            raise self.schema(*problems)
        self.check_names(call.body)
        if api in (apis.RESPONSES, apis.MESSAGES) and self.version < (0, 20):
            call.body.pop("kv_transfer_params", None)  # these APIs did not know the field
        try:
            broken_rule(call.body, api, self.version, self.settings.context_tokens)
            job = self._read(call, api)
        except Fault as fault:
            raise Rejection(400, self.error(400, str(fault), fault.param)) from None
        job = self.fit(job)
        if len(call.request.headers.getall("X-Request-Id", ())) > 1:
            self.ledger.violate("request_id_twice", "the header came twice")
        id = vllm_id(api, call.received.header("X-Request-Id"))
        shape = vllm_shape(job, self.settings.model, id, call.body)
        self.running += 1
        try:
            await self.prepare(call, job, shape, VllmPhase(self, self.connector, call, id)).send()
        finally:
            self.running -= 1

    def _read(self, call: Call, api: str) -> Job:
        given = given_prompt(call.body) if api == apis.CHAT and self.version >= (0, 33) else None
        try:
            prompts: tuple[Prompt, ...] = read_prompts(call.body, api) if given is None else (given,)
        except ValueError as error:
            raise Fault(str(error), ASKED[api]) from None
        try:
            return read_job(cast("Mapping[str, Any]", call.body), prompts, api, limits=LIMITS[api])
        except ValueError as error:
            name, value = str(error).split()[0], str(error).rsplit(maxsplit=1)[-1]
            raise Fault(f"{error}. (parameter={name}, value={value})", name) from None

    def _make_connector(self) -> Connector:
        match self.settings.connector:
            case "mooncake":
                return MooncakeConnector(self, self.session)
            case "nixl" | "nixl-push" as name:
                return NixlConnector(self, self.session, push=name == "nixl-push")
            case name:
                return StorageConnector(self, self.session, reporting=name == "lmcache")
