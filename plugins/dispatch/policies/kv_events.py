"""The worker that has the most of the prompt in its cache, by what the workers tell of their caches."""

from collections.abc import Awaitable
from itertools import islice
from math import ceil
from pathlib import Path
from typing import ClassVar, Final, Literal

from attrs import Factory, field, frozen, validators

from plugins.board import Record
from plugins.dispatch.candidates import Candidates
from plugins.dispatch.policies.kv_index import Holding
from plugins.dispatch.policies.kv_prompt import KvPrompt, OwnNumbering, Preparation
from plugins.dispatch.policies.kv_sources import KvSource, check_libraries
from plugins.dispatch.policies.kv_state import KvState
from plugins.dispatch.policies.pins import Pins
from plugins.dispatch.policies.polled_source import PolledSource
from plugins.dispatch.policies.scores import best
from plugins.dispatch.policies.tokenizer import load_tokenizer
from plugins.dispatch.policies.trtllm_hashes import BLOCK_TOKENS, BlockKeys
from plugins.dispatch.policies.zmq_addresses import check_address
from plugins.dispatch.policies.zmq_bound import BoundZmqSource
from plugins.dispatch.policies.zmq_source import ZmqSource
from plugins.dispatch.policy import Choices, Facts, Match, Site
from plugins.dispatch.worker import Worker

SIZES: Final = 4
"""Sizes of blocks for which a prompt's blocks are numbered; usually all workers have the same."""


def _make_state(policy: "KvEvents") -> KvState:
    tokenizer = None if policy.tokenizer is None else load_tokenizer(policy.tokenizer, policy.chat_template)
    polled = policy.source == "polled"
    numbering = BlockKeys() if polled else OwnNumbering()
    return KvState(
        Preparation(tokenizer, numbering), Pins(policy.max_sessions), policy.max_blocks_per_worker, unsigned=polled
    )


def _make_source(policy: "KvEvents", site: Site, state: KvState) -> KvSource:
    holding = state.holding
    if policy.source == "polled":
        return PolledSource(policy.tokens_per_block, site, holding, state.pass_on)
    if policy.bind is not None:
        return BoundZmqSource(policy.bind, policy.replay_endpoint, site, holding)
    return ZmqSource(policy.endpoint, policy.replay_endpoint, policy.ranks, site, holding)


@frozen
class KvEvents:
    """Choose the worker with the most blocks of the prompt, less `load_weight` blocks for each request on it.

    `source`: `zmq` for vLLM and SGLang, whose workers are listened to at `endpoint`, or else where vLLM's say
    themselves; after a gap they are asked at `replay_endpoint`. Both are `tcp://{host}:PORT`, for each of the `ranks`
    of a worker one port higher. With `bind` all workers connect to that address, with topics `kv@HOST:PORT@MODEL`.
    `polled` for TensorRT-LLM, whose workers are asked after each request; meanwhile `track_routed_blocks` takes what
    they were sent for what they have, as it does for `polled` unless told otherwise.

    Only token ids can be looked for: those that the client sent, or those that `tokenizer`, a `tokenizer.json`, makes,
    of chats with the model's `chat_template`, a file of its own. Requests without any go to the least loaded worker.

    A conversation stays where it is, as long as its worker has fewer requests than `load_cap` times `max_batch_size`;
    the last `max_sessions` are remembered. `tokens_per_block` need be given only for `polled`, and only to insist on
    it: by default each worker's own size is used. Of each worker `max_blocks_per_worker` blocks are remembered.
    """

    tells_match: ClassVar[bool] = True

    source: Literal["zmq", "polled"] = "zmq"
    tokens_per_block: int | None = field(
        default=None, validator=validators.optional([validators.ge(1), validators.le(65536)])
    )
    load_weight: float = field(default=0.25, validator=[validators.ge(0), validators.le(1e6)])
    load_cap: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    max_batch_size: int = field(default=64, validator=validators.ge(1))
    track_routed_blocks: bool | None = None
    max_sessions: int = field(default=50_000, validator=validators.ge(0))
    max_blocks_per_worker: int = field(default=100_000, validator=validators.ge(1))
    endpoint: str | None = field(default=None, validator=validators.optional(check_address))
    replay_endpoint: str | None = field(default=None, validator=validators.optional(check_address))
    bind: str | None = field(default=None, validator=validators.optional(check_address))
    ranks: int = field(default=1, validator=[validators.ge(1), validators.le(1024)])
    tokenizer: Path | None = None
    chat_template: Path | None = None
    _state: KvState = field(init=False, default=Factory(_make_state, takes_self=True), eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_libraries(self.source)
        if self.chat_template is not None and self.tokenizer is None:
            raise ValueError("chat_template is of no use without tokenizer")
        if self.source == "polled" and (self.endpoint or self.replay_endpoint or self.bind):
            raise ValueError("endpoint, replay_endpoint and bind are for the source 'zmq'")
        if self.bind is not None and (self.endpoint is not None or "{host}" in self.bind):
            raise ValueError("bind is an address of this machine, and stands in place of endpoint")

    def start(self, site: Site, /) -> None:
        """Begin to listen, or to ask."""
        self._state.site = site
        self._state.source = _make_source(self, site, self._state)

    async def stop(self) -> None:
        """End that."""
        if self._state.source is not None:
            await self._state.source.stop()
            self._state.source = None

    def prepare(self, facts: Facts, /) -> Awaitable[None] | None:
        """Number the blocks of the prompt."""
        return self._state.preparation.begin(facts, self._sizes())

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """The worker of the conversation, else the one with the best of cache and load."""
        state = self._state
        if state.choices is not None:
            state.choices.hear()
        prompt = facts.notes
        if not isinstance(prompt, KvPrompt):  # nobody prepared it
            prompt = facts.notes = state.preparation.make(facts, facts.prompt.ids, self._sizes())
        candidates = self._below_cap(candidates)
        found = state.groups(prompt, candidates.mask, self._unit)
        worker = state.pins.get(prompt.pin)
        if worker is None or worker not in candidates:
            worker, _ = best(candidates, found, self.load_weight, state.turn)
        if state.choices is not None:
            state.announce(prompt.pin, worker)
        state.pins.put(prompt.pin, worker)
        cached = next((depth for depth, mask in found if mask >> worker.index & 1), 0.0)
        facts.match = Match(round(cached * self._unit), prompt.tokens) if prompt.tokens else None
        return worker

    def finished(self, worker: Worker, facts: Facts, /, *, success: bool) -> None:
        """Note what a worker has now, and have it asked."""
        state, prompt = self._state, facts.notes
        if state.site is None or state.source is None or not state.site.roster.has(worker):
            return
        tracks = self.source == "polled" if self.track_routed_blocks is None else self.track_routed_blocks
        if success and tracks and isinstance(prompt, KvPrompt):
            state.route(worker, prompt.blocks.get(state.holding(worker).size or self._unit, ()))
        if state.site.roster.takes(worker):
            state.source.finished(worker)

    def turned(self, worker: Worker, /) -> None:
        """Follow a worker that takes requests."""
        state = self._state
        if state.source is not None and state.site is not None and state.site.roster.takes(worker):
            state.source.turned(worker)

    def left(self, worker: Worker, /) -> None:
        """Forget a worker that is gone."""
        state = self._state
        if state.source is not None:
            state.source.left(worker)
        state.forget(worker)

    def join(self, choices: Choices, /) -> None:
        """Tell other processes where conversations are, and which blocks were sent where."""
        self._state.choices = choices

    def heard(self, worker: Worker, record: Record, /) -> None:
        """Know what another process knows."""
        self._state.hear(worker, record)

    @property
    def _unit(self) -> int:
        return self.tokens_per_block or BLOCK_TOKENS

    def _sizes(self) -> tuple[int, ...]:
        return tuple(islice(self._state.index.sizes, SIZES)) or (self._unit,)

    def holding(self, worker: Worker) -> Holding:
        """What is known of a worker's cache."""
        return self._state.holding(worker)

    def _below_cap(self, candidates: Candidates) -> Candidates:
        """Those that have not too much to do; all of them if that is none."""
        if self.load_cap is None:
            return candidates
        below = candidates.roster.levels.up_to(ceil(self.load_cap * self.max_batch_size)) & candidates.mask
        return Candidates(candidates.roster, below) if below else candidates


POLICY = KvEvents
