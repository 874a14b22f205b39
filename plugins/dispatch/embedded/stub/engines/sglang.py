"""An SGLang worker: what it refuses, and how the halves of a pair come to their answers."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, cast
from uuid import uuid4

import aiohttp
from aiohttp import web
from attrs import define, evolve, field

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.base import Handler
from plugins.dispatch.embedded.stub.engines.job import Job, read_job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt, read_prompts
from plugins.dispatch.embedded.stub.engines.sglang_fields import GENERATE, TABLES, is_room
from plugins.dispatch.embedded.stub.engines.sglang_generate import GenerateShape, read_generate
from plugins.dispatch.embedded.stub.engines.sglang_pair import JOIN_PATH, DecodePhase, PrefillPhase, SglangPhase
from plugins.dispatch.embedded.stub.engines.sglang_probes import SglangProbes
from plugins.dispatch.embedded.stub.engines.sglang_rooms import DEFAULT_PORT, Room, overridden, read_rooms
from plugins.dispatch.embedded.stub.engines.sglang_rules import asked_limit, broken_limit, broken_rule, tell_plainly
from plugins.dispatch.embedded.stub.engines.sglang_shapes import sglang_shape
from plugins.dispatch.embedded.stub.pairing import Pairing, TakenError
from plugins.dispatch.embedded.stub.peer import peer_session
from plugins.dispatch.embedded.stub.settings import StubSettings
from plugins.dispatch.embedded.stub.shapes.base import Shape
from plugins.dispatch.embedded.stub.side import read_asked

_NO_ROOM: Final = (
    "Invalid request: Disaggregated request received without bootstrap room id. Both halves of a pair need one."
)
_OVERRIDABLE: Final = frozenset((apis.CHAT, apis.MESSAGES, GENERATE))
_IDS: Final = {apis.RESPONSES: "request_id"}
"""The field that names a request, where it is not `rid`; messages have none but the header."""


@define(eq=False)
class SglangEngine(SglangProbes):
    """Serves one half of a pair, or whole requests in the role `both`, which does not look at rooms."""

    pairing: Pairing = field(init=False)
    session: aiohttp.ClientSession = field(init=False)
    _rooms: set[int] = field(factory=set, init=False)

    @classmethod
    def has_side_door(cls, settings: StubSettings) -> bool:
        """Whether a worker with these settings listens on a second port, for other workers."""
        return settings.role == "context" and not settings.side_on_api_port

    async def start(self) -> None:
        """Set up the way to other workers."""
        await super().start()
        self.session = peer_session()
        self.pairing = Pairing(self.ledger.notify)

    async def stop(self) -> None:
        """Close the way to other workers and forget what is held."""
        await super().stop()
        await self.session.close()

    def handlers(self) -> Mapping[str, Handler]:
        """The endpoints, with those of all APIs."""
        return {
            **super().handlers(),
            "POST /v1/responses": self.responses,
            "POST /v1/messages": self.messages,
            "POST /generate": self.generate,
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

    async def generate(self, call: Call) -> None:
        """Answer a request of the engine's own API."""
        await self._serve(call, GENERATE)

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer the decode half of a pair, which waits until the prefill half has given its blocks."""
        if self.settings.role == "context" and path == "/health":
            return web.Response()
        if self.settings.role != "context" or path != JOIN_PATH:
            return await super().side(request, path)
        wanted = await read_asked(request, "room", "prompt")
        if not is_room(wanted["room"]):
            raise Rejection(400, {"message": "the room is no room"})
        try:
            given = cast("dict[str, Any]", await self.pairing.join(wanted["room"]))
        except TakenError:
            raise Rejection(409, {"message": "the room is taken"}) from None
        verdict = given["verdict"] if list(given["prompt"]) == wanted["prompt"] else "prompt"
        return web.json_response({"verdict": verdict, "cached": given["cached"]})

    @property
    def waiting(self) -> int:
        """How many pairs wait for their other half, or are about to part."""
        return self.pairing.waiting

    def is_context(self, body: Mapping[str, object]) -> bool:
        """Whether a body is that of a context leg, which only the worker's role tells."""
        return self.settings.role == "context" and body.get("bootstrap_room") is not None

    async def _serve(self, call: Call, api: str) -> None:
        problems = list(TABLES[api].problems(call.body))
        if problems and api == apis.MESSAGES:
            raise Rejection(400, {**self.error(400, tell_plainly(problems)), "type": "Bad Request"})
        if problems:
            raise self.schema(*problems)
        try:
            given = {name: value for name, value in call.body.items() if name != "rid" or api != apis.MESSAGES}
            body = overridden(given, call.request.headers) if api in _OVERRIDABLE else given
            job = self._read(body, api)
            rooms = read_rooms(body, job, self.settings.side_port or DEFAULT_PORT)
        except ValueError as error:
            raise self.bad(str(error)) from None
        if self.settings.role == "both":
            rooms = None
        elif rooms is None:
            raise self.bad(_NO_ROOM)
        rid = body.get(_IDS.get(api, "rid"))
        id = rid if isinstance(rid, str) and rid else uuid4().hex
        model = str(body.get("model") or self.settings.model)
        shape = GenerateShape(id, self._known(body, job)) if api == GENERATE else sglang_shape(job, model, id, body)
        self.running[id] = call
        try:
            await self._answer(call, job, shape, rooms)
        finally:
            self.running.pop(id, None)

    async def _answer(self, call: Call, job: Job, shape: Shape, rooms: tuple[Room, ...] | None) -> None:
        if rooms is None:
            await self.prepare(call, job, shape, SglangPhase(self, call, job.api)).send()
            return
        with ExitStack() as stack:
            if self.settings.role == "generation":
                stack.enter_context(self._occupied(rooms))
                await self.prepare(call, job, shape, DecodePhase(self, call, job.api, rooms)).send()
                return
            try:
                halves = zip(rooms, (prompt for prompt in job.prompts for _ in range(job.choices)), strict=True)
                pairs = [stack.enter_context(self.pairing.hold(room.number, prompt)) for room, prompt in halves]
            except TakenError as error:
                raise self._taken(error.args[0]) from None
            phase = PrefillPhase(self, call, job.api, rooms, pairs=pairs)
            await self.prepare(call, evolve(job, limit=min(job.limit, 1)), shape, phase).send()

    @contextmanager
    def _occupied(self, rooms: tuple[Room, ...]) -> Iterator[None]:
        """Keep the rooms of a decode half to itself."""
        numbers = [room.number for room in rooms]
        taken = [number for number in numbers if number in self._rooms or numbers.count(number) > 1]
        if taken:
            raise self._taken(taken[0])
        self._rooms.update(numbers)
        try:
            yield
        finally:
            self._rooms.difference_update(numbers)

    def _taken(self, room: int) -> Rejection:
        self.ledger.violate("room_reused", f"room {room}")
        return self.bad(f"bootstrap room {room} is already in use")

    def _read(self, body: Mapping[str, Any], api: str) -> Job:
        if api == GENERATE:
            return self.fit(read_generate(body))
        broken = broken_rule(body, api)
        if broken is not None:
            raise ValueError(broken)
        job = read_job(body, read_prompts(body, api), api, least=0)
        fitted = self.fit(job)
        broken = broken_limit(job, fitted, self.settings.context_tokens)
        if broken is not None and asked_limit(body, api) is not None:
            raise ValueError(broken)
        return fitted

    def _known(self, body: Mapping[str, Any], job: Job) -> Prompt | None:
        """The tokens of the prompt whose probabilities are asked for; only who computes them knows those."""
        if body.get("return_logprob") is not True:
            return None
        return () if self.settings.role == "generation" else job.prompts[0]
