"""What the two halves of an SGLang request do: the prefill waits to be joined, and the decode joins it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.answering import Phase
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.engines.sglang_rooms import Room
from plugins.dispatch.embedded.stub.handoffs import DROPPED, FETCHED, Handoff
from plugins.dispatch.embedded.stub.pairing import Pair
from plugins.dispatch.embedded.stub.peer import PeerError, address, ask_peer
from plugins.dispatch.embedded.stub.shapes.base import Choice

if TYPE_CHECKING:
    from plugins.dispatch.embedded.stub.engines.sglang import SglangEngine

JOIN_PATH: Final = "/_stub/kv/join"

OK: Final = "ok"
ABORTED: Final = "aborted"


@define(eq=False)
class SglangPhase(Phase):
    """An aggregated worker's request: it counts its tokens, and has nobody to meet."""

    engine: "SglangEngine"
    call: Call
    api: str

    async def begin(self, job: Job) -> Job:
        """Count where the KV cache of the prompts comes from."""
        admitted = self.engine.admit(job)
        self.engine.metrics.add("sglang:realtime_tokens_total", admitted.cached_tokens, "prefill_cache")
        self.engine.metrics.add("sglang:realtime_tokens_total", job.tokens - admitted.cached_tokens, "prefill_compute")
        return admitted

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Count the tokens of the answer."""
        del job
        made = sum(len(choice.tokens) for choice in choices)
        self.engine.metrics.add("sglang:realtime_tokens_total", made, "decode")
        return {}

    def fail(self, message: str) -> Rejection:
        """Make the failure of a pair, which the Responses API calls the client's fault."""
        status = 400 if self.api == "responses" else 500
        told = "Internal server error" if self.api == "messages" else message
        return Rejection(status, self.engine.error(status, told))


@define(eq=False)
class _HalfPhase(SglangPhase):
    """One half of a pair, whose blocks are held for as long as it waits for the other half."""

    rooms: Sequence[Room]
    _held: list[Handoff] = field(factory=list, init=False)

    def hold(self, job: Job) -> None:
        """Hold the blocks of all sequences."""
        for place, room in enumerate(self.rooms):
            prompt = job.prompts[place // job.choices]
            self._held.append(self.engine.handoffs.hold(room.number, prompt, seconds=1e9))

    def release(self, ending: str) -> None:
        """Hold nothing any more; what has ended already stays as it is."""
        for handoff in self._held:
            self.engine.handoffs.end(handoff, ending)

    def leak(self) -> None:
        """Give up blocks for which nobody came."""
        for handoff in self._held:
            self.engine.handoffs.expire(handoff)

    def lose(self) -> None:
        """Hold nothing for a request that did not come to its end."""
        self.release(DROPPED)


@define(eq=False)
class PrefillPhase(_HalfPhase):
    """The half that computes the prompt, once the other half is there."""

    pairs: Sequence[Pair] = ()

    async def begin(self, job: Job) -> Job:
        """Wait for the decode half of each sequence."""
        self.hold(job)
        try:
            async with asyncio.timeout(self.engine.settings.pair_seconds):
                for pair in self.pairs:
                    await self.call.unless_stopped(pair.joined.wait())
        except TimeoutError:
            self.leak()
            raise self.fail(f"Prefill bootstrap timed out, room {self.rooms[0].number}") from None
        admitted = await super().begin(job)
        return evolve(admitted, declined="abort") if self.call.has_fault("no_handoff") else admitted

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Give the blocks to the decode half; nothing tells it of a request that was stopped."""
        del choices
        if self.call.stopped.is_set():
            self.release(DROPPED)
            return {}
        verdict = ABORTED if self.call.has_fault("no_handoff") else OK
        cached = job.cached_tokens // len(self.pairs)
        taken = [pair.give({"prompt": pair.prompt, "verdict": verdict, "cached": cached}) for pair in self.pairs]
        self.release(FETCHED if all(taken) and verdict == OK else DROPPED)
        return {}


@define(eq=False)
class DecodePhase(_HalfPhase):
    """The half that answers, with the blocks that the prefill half gives."""

    async def begin(self, job: Job) -> Job:
        """Join the prefill half of each sequence."""
        self.hold(job)
        try:
            given = await self.call.unless_stopped(self._join_all(job))
        except TimeoutError:
            self.leak()
            raise self.fail(f"Decode waited too long for room {self.rooms[0].number}") from None
        except PeerError:
            await self.call.unless_stopped(asyncio.sleep(self.engine.settings.failure_seconds))
            words = f"Decode transfer failed for room {self.rooms[0].number}: Lost connection with prefill instance"
            raise self.fail(words) from None
        self.release(FETCHED)
        spoiled = frozenset(place for place, answer in enumerate(given) if answer["verdict"] != OK)
        return evolve(job, spoiled=spoiled, cached_tokens=sum(answer["cached"] for answer in given) // job.choices)

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Count the tokens of the answer, and hold nothing for a request that was stopped."""
        self.release(DROPPED)
        return await super().finish(job, choices)

    async def _join_all(self, job: Job) -> list[dict[str, Any]]:
        tasks = [asyncio.ensure_future(self._join(job, place)) for place in range(job.sequences)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _join(self, job: Job, place: int) -> dict[str, Any]:
        room = self.rooms[place]
        prompt: Prompt = job.prompts[place // job.choices]
        if room.host is None:
            raise PeerError("no bootstrap host")
        url = address(room.host, room.port) + JOIN_PATH
        wanted = {"room": room.number, "prompt": prompt}
        answer = await ask_peer(self.engine.session, url, wanted, self.engine.settings.pair_seconds)
        if answer["verdict"] == "prompt":
            self.engine.ledger.violate("pair_prompt_differs", f"room {room.number}")
        return answer
