"""vLLM's NIXL connectors: blocks are pinned until the decode worker has them, by pull or by push."""

from itertools import count
from typing import Any, Final
from uuid import uuid4

from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.engines.vllm_connector import Connector, Loaded, LoadError, Params
from plugins.dispatch.embedded.stub.engines.vllm_params import Location, problem, same, wants_decode, wants_prefill
from plugins.dispatch.embedded.stub.handoffs import DROPPED, EXPIRED, FETCHED, RELEASED
from plugins.dispatch.embedded.stub.peer import address
from plugins.dispatch.embedded.stub.shapes.base import Choice
from plugins.dispatch.embedded.stub.side import read_asked

PULL_PATH: Final = "/_stub/kv/pull"
RELEASE_PATH: Final = "/_stub/kv/release"

_MARKS: Final = {"completions": "-0", "responses": "_0"}
"""What the engine puts behind the id of an answer to name its first sequence."""

VIOLATIONS: Final = {
    FETCHED: "handoff_used_twice",
    EXPIRED: "handoff_expired",
    RELEASED: "handoff_used_twice",
    DROPPED: "handoff_unknown",
    "unknown": "handoff_unknown",
    "changed": "handoff_changed",
    "prompt": "handoff_prompt_differs",
}


@define(eq=False)
class NixlConnector(Connector):
    """Hands blocks over by the name of the request that made them; `push` leaves their ids out."""

    push: bool = False
    engine_id: str = field(init=False, factory=lambda: str(uuid4()))
    _block_ids: "count[int]" = field(factory=count, init=False)
    _kept: dict[Call, list[str]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.transfers = True

    async def load(self, call: Call, job: Job) -> Loaded:
        """Fetch the blocks that the handoff names; wrong ones come as easily as right ones."""
        params = wants_prefill(call.body)
        tail = self._tail(call, job)
        if params is None:
            return Loaded(tail=tail)
        wrong = problem(params, push=self.push)
        if wrong is not None:
            raise self.die(wrong)
        verdict = (await self._ask(PULL_PATH, params, job))["verdict"]
        call.settled = True  # not before: a client that leaves meanwhile ends the pull, wherever it is
        everything = frozenset(range(job.sequences))
        if verdict in VIOLATIONS:
            self.engine.ledger.violate(VIOLATIONS[verdict], f"remote_request_id {params['remote_request_id']}")
            return Loaded(job.tokens, everything, tail=tail)
        if job.sequences > 1:
            # Only the first sequence pulls; the blocks are gone when the others read them.
            self.engine.ledger.violate("handoff_for_many", f"{job.sequences} sequences share one handoff")
        return Loaded(job.tokens, everything - {0}, tail=tail)

    def save(self, call: Call, job: Job, choices: list[Choice], id: str) -> object:
        """Pin the blocks of a request whose decoding is to be done elsewhere, and say where they are."""
        if not wants_decode(call.body) or call.has_fault("no_handoff"):
            return None
        for kind, holds in (
            ("prefill_streamed", job.stream),
            ("prefill_of_many", job.sequences > 1),
            ("prefill_decodes", job.limit > 1),
            ("prefill_on_decode_worker", self.engine.settings.role == "generation"),
        ):
            if holds:
                self.engine.ledger.violate(kind, f"request {id}")
        if self.engine.version < (0, 20) and choices[0].finish_reason != "length":
            return None
        made = [self._pin(call, job.prompts[place // job.choices], id, job) for place in range(job.sequences)]
        return None if job.stream else made[0]

    def lose(self, call: Call) -> None:
        """Unpin what a worker that has just died had pinned."""
        for key in self._kept.get(call, ()):
            handoff = self.engine.handoffs.find(key)
            if handoff is not None:
                self.engine.handoffs.end(handoff, DROPPED)

    def leave(self, call: Call) -> None:
        """Tell the prefill worker of a request that has ended before its blocks were fetched."""
        self._kept.pop(call, None)
        params = wants_prefill(call.body)
        aborted = call.response is None
        if params is None or call.settled or call.cut or problem(params, push=self.push) is not None:
            return
        if aborted or self.engine.version >= (0, 26):
            call.settled = True
            self.engine.run_errand(self._release(params))

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a decode worker that wants blocks, or wants them no more."""
        if path not in (PULL_PATH, RELEASE_PATH):
            return await super().side(request, path)
        wanted = await read_asked(request, "engine_id", "params", "prompt")
        if wanted["engine_id"] != self.engine_id:
            raise Rejection(404, {"message": "another worker had this address"})
        return web.json_response({"verdict": self._verdict(wanted, FETCHED if path == PULL_PATH else RELEASED)})

    def _verdict(self, wanted: Params, ending: str) -> str:
        """End what a handoff names, and say whether it was what the decode worker thinks that it is."""
        handoffs, key = self.engine.handoffs, wanted["params"].get("remote_request_id")
        handoff = handoffs.find(key)
        if handoff is None:
            if handoffs.ending(key) == EXPIRED:
                self.engine.metrics.add("vllm:nixl_num_notifications_after_expiry_total")
            return handoffs.ending(key)
        handoffs.end(handoff, ending)
        if ending == RELEASED:
            return RELEASED
        if not same(handoff.mark, wanted["params"]):
            return "changed"
        return "ok" if list(handoff.prompt) == wanted["prompt"] else "prompt"

    def _pin(self, call: Call, prompt: Prompt, id: str, job: Job) -> dict[str, object]:
        params = self._describe(prompt, f"{id}{_MARKS.get(job.api, '')}-{uuid4().hex[:8]}", job.cached_tokens)
        key = str(params["remote_request_id"])
        self._kept.setdefault(call, []).append(key)
        self.engine.handoffs.hold(key, prompt, params)
        return params

    def _describe(self, prompt: Prompt, request_id: str, cached: int) -> dict[str, object]:
        place = self.engine.place
        blocks = [next(self._block_ids) for _ in range(self.engine.handoffs.blocks(prompt))]
        port = place.side_port or place.port
        location = Location(self.engine_id, request_id, place.host, port, blocks, len(prompt), cached)
        return location.describe(self.engine.version, push=self.push)

    async def _ask(self, path: str, params: Params, job: Job | None) -> dict[str, Any]:
        url = address(params["remote_host"], params["remote_port"]) + path
        wanted = {
            "engine_id": params["remote_engine_id"],
            "params": {key: value for key, value in params.items() if key != "prompt_token_ids"},
            "prompt": job.prompts[0] if job else (),
        }
        return dict(await self.ask(url, wanted, self.engine.settings.fetch_seconds))

    async def _release(self, params: Params) -> None:
        try:
            await self._ask(RELEASE_PATH, params, None)
        except LoadError:
            return  # nobody is there who could hold anything

    def _tail(self, call: Call, job: Job) -> dict[str, object]:
        """What an answer says of a worker that can hand blocks back for the next turn; nobody fetches them here."""
        if not self.engine.settings.bidirectional or wants_decode(call.body):
            return {}
        params = self._describe(job.prompts[0], uuid4().hex, 0)
        return {"kv_transfer_params": {**params, "do_remote_prefill": False, "do_remote_decode": True}}
