"""vLLM: what both workers are sent, by the KV connector that they were started with."""

from os import urandom
from typing import Any, ClassVar, Final, Literal, TypeAlias

import orjson
from attrs import field, frozen, validators

from plugins.dispatch.apis import USUAL, Apis, check_apis
from plugins.dispatch.engine import Body, Handoff, Partner, Reading, Request
from plugins.dispatch.engines import vllm_answers as answers
from plugins.dispatch.engines.bodies import append, encode, host_of, parse
from plugins.dispatch.engines.vllm_bodies import (
    TELLING,
    context_data,
    has_many,
    may_reuse,
    thinks,
    uses_tools_itself,
    wants_prompt,
)
from plugins.dispatch.engines.vllm_mooncake import choose_rank
from plugins.dispatch.engines.vllm_threshold import DECLINED, THRESHOLD
from plugins.dispatch.plan import SERIAL_RELAY, SIMULTANEOUS_PAIR, Plan
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS

Child: TypeAlias = Literal["nixl", "nixl_push", "mooncake", "shared_storage", "lmcache"]
Connector: TypeAlias = Literal["nixl", "nixl_push", "mooncake", "shared_storage", "lmcache", "multi"]

_TRANSFERS: Final = ("nixl", "nixl_push", "mooncake")
_ASKS_FOR_TRANSFER: Final = {"do_remote_decode": True, "do_remote_prefill": False}
_TAKES_TRANSFER: Final = {"do_remote_decode": False, "do_remote_prefill": True}
_TRIED: Final = (CHAT_COMPLETIONS, COMPLETIONS)
"""The endpoints at which a worker may decline."""

_APIS: Final[Apis] = (*USUAL, "responses", "messages", "count_tokens", "tokenize", "detokenize")


@frozen
class VllmEngine:
    """The context worker computes the prompt, the generation worker fetches its KV cache and goes on from it.

    `connector`: that of the workers' `--kv-transfer-config`; of a MultiConnector, `multi` and its `children`, of which
    one moves KV caches between workers. `lease_seconds`: how long a context worker waits for the generation worker.
    `reuse_prompt_token_ids`: for workers that take a chat's token ids in the handoff, from release 0.33 on.
    `bootstrap_port`: where Mooncake's context workers are asked for their names. `cache_hit_threshold`: ask the
    generation worker first, which declines if it finds less than this part of the prompt in the shared store. `apis`:
    what the workers answer; those before release 0.20 hand over on completions and chat alone.
    """

    name: ClassVar[str] = "vllm"
    concern: ClassVar[Any] = answers.CONCERN

    connector: Connector = "nixl"
    children: tuple[Child, ...] = ()
    lease_seconds: float = field(default=30.0, validator=validators.gt(0))
    reuse_prompt_token_ids: bool = False
    bootstrap_port: int = field(default=8998, validator=[validators.ge(1), validators.lt(1 << 16)])
    cache_hit_threshold: float | None = field(
        default=None, validator=validators.optional([validators.gt(0), validators.le(1)])
    )
    apis: Apis = field(default=_APIS, validator=check_apis)
    _moves_by: Connector = field(init=False, eq=False, repr=False)
    _transfers: bool = field(init=False, eq=False, repr=False)
    _may_reuse: bool = field(init=False, eq=False, repr=False)
    plan: Plan = field(init=False, eq=False, repr=False)
    """Mooncake's workers find each other by an id that both are told; all others one after the other."""

    @_moves_by.default
    def _find_mover(self) -> Connector:
        return next((child for child in self.children if child in _TRANSFERS), self.connector)

    @_transfers.default
    def _has_transfers(self) -> bool:
        return self._moves_by in _TRANSFERS

    @_may_reuse.default
    def _takes_token_ids(self) -> bool:
        return self.reuse_prompt_token_ids and self._moves_by in ("nixl", "nixl_push")

    @plan.default
    def _choose_plan(self) -> Plan:
        return SIMULTANEOUS_PAIR if self._moves_by == "mooncake" else SERIAL_RELAY

    def __attrs_post_init__(self) -> None:
        moving = [child for child in self.children if child in _TRANSFERS]
        if self.connector == "multi" and len(moving) != 1:
            raise ValueError(f"one of the children has to be of {', '.join(_TRANSFERS)}, got {len(moving)}")
        if self.connector != "multi" and self.children:
            raise ValueError("children are those of the connector multi")
        if self.cache_hit_threshold is not None and self._transfers:
            raise ValueError("cache_hit_threshold is for workers that share a store: shared_storage or lmcache")

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def alone(self, request: Request, /) -> bool:
        """Whether a handoff would serve one of several sequences, or lose what the answer says of the prompt."""
        data, api = request.payload.data, request.endpoint.name
        if api == "messages" and self._moves_by == "mooncake":
            return True  # its workers drop what did not end for its length, and messages have no field against that
        return not TELLING.isdisjoint(data) and (
            (self._transfers and has_many(data))
            or wants_prompt(data)
            or (api == "messages" and thinks(data))
            or (api == "responses" and uses_tools_itself(data))
        )

    def meet(self, _request: Request, partner: Partner, /) -> Handoff:
        """The names of one transfer of Mooncake's."""
        rank, engine_id, ranks = choose_rank(partner.told)
        id = f"xfer-{urandom(16).hex()}"
        place = {"remote_engine_id": engine_id, "remote_bootstrap_addr": self._bootstrap(partner)}
        fields: dict[str, Any] = {
            Role.CONTEXT: {**_ASKS_FOR_TRANSFER, "transfer_id": id},
            Role.GENERATION: {**_TAKES_TRANSFER, "transfer_id": id, **place},
        }
        return Handoff(fields, notes={"x-data-parallel-rank": rank} if ranks > 1 else {})

    def question(self, partner: Partner, /) -> str:
        """Where Mooncake's context workers tell their names."""
        return f"{self._bootstrap(partner)}/query"

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """The client's own bytes with the handoff behind them; for the context leg, its fields with one token."""
        if role is Role.CONTEXT:
            return self._context_body(request, handoff)
        if handoff is None:
            return Body(request.payload.encode())
        if self._moves_by == "mooncake":
            member = orjson.dumps({answers.PARAMS: handoff.fields[Role.GENERATION]})
        elif self.cache_hit_threshold is not None and request.endpoint in _TRIED:
            member = orjson.dumps({THRESHOLD: handoff.fields.get(THRESHOLD, 0)})
        else:
            notes: answers.Notes = handoff.notes
            member = notes.member
        return Body(append(request.payload.encode(), member))

    def trial(self, request: Request, /) -> Handoff | None:
        """The part of the prompt that a generation worker needs to have."""
        if self.cache_hit_threshold is None or request.endpoint not in _TRIED:
            return None
        return Handoff({THRESHOLD: self.cache_hit_threshold}, reusable=True, notes=answers.Notes())

    def declined(self, answer: bytes, /) -> bool:
        """Whether it had less."""
        return DECLINED.search(answer) is not None

    def read(self, role: Role, request: Request, answer: bytes, handoff: Handoff | None = None, /) -> Reading:
        """The handoff of a context worker; a generation worker's answer with what the client may see."""
        if role is Role.CONTEXT:
            match self._moves_by:
                case "mooncake":
                    return answers.read_paired(answer)
                case "nixl" | "nixl_push":
                    reuse = self._may_reuse and may_reuse(request)
                    return answers.read_relayed(answer, lease=self.lease_seconds, reuse=reuse)
                case _:
                    return answers.read_shared(answer)
        if answers.CONCERN.search(answer) is None:
            return answer
        data = parse(answer, "generation")
        answers.clean(data, request, handoff)
        return orjson.dumps(data)

    def edit(self, request: Request, handoff: Handoff | None, _name: bytes, data: bytes, /) -> bytes:
        """An event of a stream with what the client may see."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return data
        if not isinstance(value, dict):
            return data
        answers.clean(value, request, handoff)
        return orjson.dumps(value)

    def _context_body(self, request: Request, handoff: Handoff | None) -> Body:
        data = context_data(request)
        if handoff is not None:
            data[answers.PARAMS] = handoff.fields[Role.CONTEXT]
        elif self._transfers:
            data[answers.PARAMS] = _ASKS_FOR_TRANSFER
        if self._may_reuse and may_reuse(request):
            data["return_token_ids"] = True
        if self.cache_hit_threshold is not None and request.endpoint in _TRIED:
            data[THRESHOLD] = 0
        return Body(encode(data), handoff.notes if handoff is not None else {})

    def _bootstrap(self, partner: Partner) -> str:
        return f"http://{host_of(partner.url)}:{partner.bootstrap_port or self.bootstrap_port}"


ENGINE = VllmEngine
