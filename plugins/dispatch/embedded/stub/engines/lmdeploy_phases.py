"""The two phases of LMDeploy: one keeps the cache under the request's number, the other one takes it from there."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.answering import Phase
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.handoffs import DROPPED, EXPIRED, FETCHED, RELEASED
from plugins.dispatch.embedded.stub.peer import PeerError, ask_peer
from plugins.dispatch.embedded.stub.shapes.base import Choice

if TYPE_CHECKING:
    from plugins.dispatch.embedded.stub.engines.lmdeploy import LmdeployEngine

TAKE_PATH: Final = "/_stub/kv/take"

_VIOLATIONS: Final = {
    FETCHED: "handoff_used_twice",
    EXPIRED: "handoff_expired",
    RELEASED: "handoff_released",
    DROPPED: "handoff_unknown",
    "unknown": "handoff_unknown",
    "changed": "handoff_changed",
    "prompt": "handoff_prompt_differs",
}


@define(eq=False)
class PrefillPhase(Phase):
    """Makes one token, and keeps the cache until it is taken or given up."""

    engine: "LmdeployEngine"
    call: Call
    number: int

    async def begin(self, job: Job) -> Job:
        """Look whether this is half a request."""
        ledger, role = self.engine.ledger, self.engine.settings.role
        for kind, holds in (
            ("prefill_streamed", job.stream),
            ("prefill_decodes", job.limit > 1),
            ("prefill_not_preserved", self.call.body.get("preserve_cache") is not True),
            ("prefill_on_decode_worker", role == "generation"),
            ("session_of_a_client", "session_id" in self.call.body),
        ):
            if holds:
                ledger.violate(kind, f"session {self.number}")
        return self.engine.admit(job)

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Keep the cache, and say where it is."""
        if self.call.has_fault("no_handoff"):
            return {}
        tokens = choices[0].tokens or [0]
        blocks = list(range(self.number * 10, self.number * 10 + self.engine.handoffs.blocks(job.prompts[0])))
        self.engine.handoffs.hold(self.number, job.prompts[0], (blocks, tokens[-1]))
        self.engine.kept[self.call] = self.number
        return {"cache_block_ids": blocks, "remote_token_ids": tokens}

    def lose(self) -> None:
        """Give up what a worker that has just died had kept."""
        handoff = self.engine.handoffs.find(self.engine.kept.get(self.call, 0))
        if handoff is not None and self.call.cut:
            self.engine.handoffs.end(handoff, DROPPED)

    @staticmethod
    def give(engine: "LmdeployEngine", wanted: Mapping[str, Any]) -> str:
        """Give a cache to the decode worker that names it, and say whether it is what that one thinks that it is."""
        handoff = engine.handoffs.find(wanted["session"])
        if handoff is None:
            return engine.handoffs.ending(wanted["session"])
        engine.handoffs.end(handoff, FETCHED)
        if handoff.mark != (wanted["blocks"], wanted["token"]):
            return "changed"
        return "ok" if list(handoff.prompt) == wanted["prompt"] else "prompt"


@define(eq=False)
class DecodePhase(Phase):
    """Takes a cache before the first token."""

    engine: "LmdeployEngine"
    call: Call
    migration: Mapping[str, Any]

    async def begin(self, job: Job) -> Job:
        """Take the cache; a wrong one comes as easily as the right one."""
        engine, source = self.engine, self.migration["remote_engine_id"]
        if not engine.links.is_connected(source):
            engine.ledger.violate("not_connected", source)
            raise Rejection(500, engine.error(500, "Internal server error"))
        if "session_id" in self.call.body:
            engine.ledger.violate("session_of_a_client", str(self.call.body["session_id"]))
        wanted = {
            "by": engine.place.url,
            "session": self.migration["remote_session_id"],
            "blocks": self.migration["remote_block_ids"],
            "token": self.migration["remote_token_id"],
            "prompt": job.prompts[0],
        }
        try:
            answer = await ask_peer(engine.session, source + TAKE_PATH, wanted, engine.settings.fetch_seconds)
        except (PeerError, TimeoutError):
            raise Rejection(500, engine.error(500, "Internal server error")) from None
        verdict = answer["verdict"]
        if verdict in _VIOLATIONS:
            engine.ledger.violate(_VIOLATIONS[verdict], f"session {wanted['session']}")
            return evolve(engine.admit(job), spoiled=frozenset({0}))
        return engine.admit(job)
