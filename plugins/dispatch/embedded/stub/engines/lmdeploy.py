"""An LMDeploy worker of DistServe: what it refuses, and the phase that a request asks for."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final, cast

import aiohttp
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Handler
from plugins.dispatch.embedded.stub.engines.job import read_job
from plugins.dispatch.embedded.stub.engines.lmdeploy_links import LinkBook
from plugins.dispatch.embedded.stub.engines.lmdeploy_phases import TAKE_PATH, DecodePhase, PrefillPhase
from plugins.dispatch.embedded.stub.engines.openai import OpenAIEngine
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.fields import (
    BOOLEAN,
    COUNT,
    INTEGER,
    STRING,
    TOKEN_IDS,
    Table,
    nested,
    optional,
    present,
    required,
)
from plugins.dispatch.embedded.stub.handoffs import RELEASED
from plugins.dispatch.embedded.stub.peer import peer_session
from plugins.dispatch.embedded.stub.shapes.openai import Extras, OpenAIShape
from plugins.dispatch.embedded.stub.side import read_asked

_MIGRATION: Final = Table(
    {
        **required(COUNT, "protocol"),
        **required(STRING, "remote_engine_id"),
        **required(INTEGER, "remote_session_id remote_token_id"),
        **required(TOKEN_IDS, "remote_block_ids"),
        **present(BOOLEAN, "is_dummy_prefill"),
    }
)
_OWN: Final = Table(
    {**optional(BOOLEAN, "with_cache preserve_cache"), **nested(_MIGRATION, "migration_request")}, open=True
)
_FREE: Final = Table({**required(STRING, "remote_engine_id"), **required(INTEGER, "remote_session_id")}, open=True)
_EXTRAS: Final = Extras(body={"cache_block_ids": None, "remote_token_ids": None})


@define(eq=False)
class LmdeployEngine(OpenAIEngine):
    """Any role serves whole requests too; one that keeps a cache has to be told what becomes of it."""

    links: LinkBook = field(init=False)
    session: aiohttp.ClientSession = field(init=False)
    sessions: "count[int]" = field(init=False, factory=lambda: count(1))
    kept: dict[Call, int] = field(init=False, factory=dict)

    async def start(self) -> None:
        """Know no other worker yet."""
        await super().start()
        self.session = peer_session()
        self.links = LinkBook(self.ledger)

    async def stop(self) -> None:
        """Close the way to other workers and forget what is held."""
        await super().stop()
        await self.session.close()

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those by which workers are connected."""
        return {
            **super().handlers(),
            "GET /distserve/engine_info": self.engine_info,
            "POST /distserve/p2p_initialize": self.initialize,
            "POST /distserve/p2p_connect": self.connect,
            "POST /distserve/p2p_drop_connect": self.drop,
            "POST /distserve/free_cache": self.free_cache,
        }

    async def engine_info(self, call: Call) -> None:
        """Tell what the worker is: JSON in a string."""
        await call.send_json(self.links.describe())

    async def initialize(self, call: Call) -> None:
        """Get ready for another worker."""
        await call.send_json(self.links.initialize(call.body))

    async def connect(self, call: Call) -> None:
        """Connect to another worker."""
        await call.send_json(self.links.connect(call.body))

    async def drop(self, call: Call) -> None:
        """Forget another worker."""
        await call.send_json(self.links.drop(call.body))

    async def free_cache(self, call: Call) -> None:
        """Give a session's cache up; of one that is not there nothing is said."""
        self._check_own(call.body, _FREE)
        handoff = self.handoffs.find(cast("int", call.body["remote_session_id"]))
        if handoff is not None:
            self.handoffs.end(handoff, RELEASED)
        await call.send_json({"status": "SUCCESS"})

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a decode worker that takes what is kept for it."""
        if path != TAKE_PATH:
            return await super().side(request, path)
        wanted = await read_asked(request, "by", "session", "blocks", "token", "prompt")
        if not self.links.is_connected(wanted["by"]):
            raise Rejection(409, {"message": "the two workers are not connected"})
        return web.json_response({"verdict": PrefillPhase.give(self, wanted)})

    def is_context(self, body: Mapping[str, object]) -> bool:
        """Whether a body is that of a context leg."""
        return body.get("with_cache") is True

    def leave(self, call: Call) -> None:
        """Take note that a request has ended, in whatever way."""
        self.kept.pop(call, None)

    async def _run(self, call: Call, prompts: tuple[Prompt, ...], api: str) -> None:
        self._check_own(call.body, _OWN)
        try:
            job = self.fit(read_job(call.body, prompts, api))
        except ValueError as error:
            raise self._bad(str(error), str(error).split(maxsplit=1)[0]) from None
        migration = cast("dict[str, Any] | None", call.body.get("migration_request"))
        if job.sequences > 1 and (migration is not None or self.is_context(call.body)):
            raise self._bad("n > 1 is not supported", "n")
        id = str(next(self.sessions))
        shape = OpenAIShape(job.chat, self.settings.model, job.asked, job.choices, _EXTRAS, id)
        if self.is_context(call.body):
            await self.prepare(call, job, shape, PrefillPhase(self, call, int(id))).send()
        elif migration is not None:
            await self.prepare(call, job, shape, DecodePhase(self, call, migration)).send()
        else:
            if self.settings.role == "context":
                self.ledger.violate("whole_request_on_context", "a context worker was to do both phases")
            await self.prepare(call, self.admit(job), shape).send()

    def _check_own(self, body: dict[str, object], table: Table) -> None:
        problems = list(table.problems(body))
        if problems:
            raise self._schema(*problems)
