"""vLLM's Mooncake connector: both workers know a transfer by an id that the front end made up."""

import asyncio
from typing import Any, Final
from uuid import uuid4

from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.vllm_connector import Connector, Loaded, LoadError, Params
from plugins.dispatch.embedded.stub.engines.vllm_nixl import RELEASE_PATH, VIOLATIONS
from plugins.dispatch.embedded.stub.engines.vllm_params import wants_decode, wants_prefill
from plugins.dispatch.embedded.stub.handoffs import DROPPED, FETCHED, RELEASED
from plugins.dispatch.embedded.stub.shapes.base import Choice
from plugins.dispatch.embedded.stub.side import read_asked

QUERY_PATH: Final = "/query"
TRANSFER_PATH: Final = "/_stub/kv/transfer"

_NEEDED: Final = ("transfer_id", "remote_engine_id", "remote_bootstrap_addr")


@define(eq=False)
class MooncakeConnector(Connector):
    """Hands blocks over by transfer id; the decode worker may ask before the prefill worker has them."""

    engine_id: str = field(init=False, factory=lambda: f"e-{uuid4().hex[:12]}")
    _failed: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.transfers = True

    async def load(self, call: Call, job: Job) -> Loaded:
        """Wait for the blocks of a transfer and fetch them; wrong ones come as easily as right ones."""
        params = wants_prefill(call.body)
        if params is None:
            return Loaded()
        missing = [name for name in _NEEDED if not isinstance(params.get(name), str) or not params[name]]
        if missing:
            raise self.die(f"without {', '.join(missing)}")
        await self._find(params)
        verdict = (await self._ask(TRANSFER_PATH, params, job))["verdict"]
        call.settled = True
        everything = frozenset(range(job.sequences))
        if verdict in VIOLATIONS:
            self.engine.ledger.violate(VIOLATIONS[verdict], f"transfer_id {params['transfer_id']}")
            return Loaded(job.tokens, everything)
        if job.sequences > 1:
            self.engine.ledger.violate("handoff_for_many", f"{job.sequences} sequences share one transfer")
        return Loaded(job.tokens, everything - {0})

    def save(self, call: Call, job: Job, choices: list[Choice], id: str) -> object:
        """Keep the blocks of a transfer; an answer that did not end for its length has none."""
        if not wants_decode(call.body):
            return None
        transfer = call.body["kv_transfer_params"]
        key = transfer.get("transfer_id") if isinstance(transfer, dict) else None
        if not isinstance(key, str) or not key:
            self.engine.ledger.violate("transfer_without_id", f"request {id}")
            return None
        if self.engine.handoffs.find(key) or self.engine.handoffs.ending(key) != "unknown":
            self.engine.ledger.violate("transfer_id_reused", f"transfer_id {key}")
            return None
        if call.has_fault("no_handoff") or choices[0].finish_reason != "length":
            self._failed.add(key)
            self.engine.ledger.notify()
            return None
        self.engine.handoffs.hold(key, job.prompts[0])
        return None

    def lose(self, call: Call) -> None:
        """Drop what a worker that has just died had kept."""
        transfer = call.body.get("kv_transfer_params")
        handoff = self.engine.handoffs.find(str(transfer.get("transfer_id"))) if isinstance(transfer, dict) else None
        if handoff is not None and wants_decode(call.body):
            self.engine.handoffs.end(handoff, DROPPED)

    def leave(self, call: Call) -> None:
        """Tell the prefill worker of a request that has ended before its blocks were fetched."""
        params = wants_prefill(call.body)
        if params is None or call.settled or call.cut:
            return
        if all(isinstance(params.get(name), str) for name in _NEEDED):
            call.settled = True
            self.engine.run_errand(self._release(params))

    async def side(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a front end that looks for this worker, or a decode worker that wants a transfer."""
        if path == QUERY_PATH:
            address = f"tcp://{self.engine.place.host}:{self.engine.place.side_port}"
            return web.json_response({"0": {"engine_id": self.engine_id, "worker_addr": {"0": {"0": address}}}})
        if path not in (TRANSFER_PATH, RELEASE_PATH):
            return await super().side(request, path)
        wanted = await read_asked(request, "engine_id", "transfer_id", "prompt")
        if wanted["engine_id"] != self.engine_id:
            raise Rejection(404, {"message": "another worker had this address"})
        if path == TRANSFER_PATH:
            return web.json_response({"verdict": await self._verdict(wanted)})
        handoff = self.engine.handoffs.find(wanted["transfer_id"])
        if handoff is not None:
            self.engine.handoffs.end(handoff, RELEASED)
        return web.json_response({"verdict": RELEASED})

    async def _verdict(self, wanted: Params) -> str:
        """Wait for a transfer, end it, and say whether it was what the decode worker thinks that it is."""
        handoffs, key = self.engine.handoffs, wanted["transfer_id"]
        try:
            async with asyncio.timeout(self.engine.settings.pair_seconds):
                await self.engine.ledger.until(
                    lambda: key in self._failed or handoffs.ending(key) != "unknown" or bool(handoffs.find(key))
                )
        except TimeoutError:
            raise Rejection(504, {"message": f"transfer {key} did not come"}) from None
        if key in self._failed:
            self._failed.discard(key)
            raise Rejection(410, {"message": f"transfer {key} was dropped"})
        handoff = handoffs.find(key)
        if handoff is None:
            return handoffs.ending(key)
        handoffs.end(handoff, FETCHED)
        return "ok" if list(handoff.prompt) == wanted["prompt"] else "prompt"

    async def _find(self, params: Params) -> None:
        """Ask the bootstrap server for its engines; the one that is wanted must be among them."""
        found = await self.ask(f"{params['remote_bootstrap_addr']}{QUERY_PATH}", None, 10.0)
        known = [rank.get("engine_id") for rank in found.values() if isinstance(rank, dict)]
        if params["remote_engine_id"] not in known:
            raise LoadError("the engine is not there")

    async def _ask(self, path: str, params: Params, job: Job | None) -> dict[str, Any]:
        wanted = {
            "engine_id": params["remote_engine_id"],
            "transfer_id": params["transfer_id"],
            "prompt": job.prompts[0] if job else (),
        }
        seconds = self.engine.settings.pair_seconds + 10.0
        return dict(await self.ask(f"{params['remote_bootstrap_addr']}{path}", wanted, seconds))

    async def _release(self, params: Params) -> None:
        try:
            await self._ask(RELEASE_PATH, params, None)
        except LoadError:
            return  # nobody is there who could hold anything
