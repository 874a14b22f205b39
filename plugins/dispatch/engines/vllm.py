"""vLLM: what both workers are sent, by the KV connector that they were started with."""

from typing import Any, ClassVar, Final, Literal, TypeAlias
from uuid import uuid4

import orjson
from attrs import field, frozen, validators

from plugins.dispatch.apis import USUAL, Apis, check_apis
from plugins.dispatch.engine import Body, Handoff, Partner, Reading, Request
from plugins.dispatch.engines import vllm_answers as answers
from plugins.dispatch.engines.bodies import append, encode, host_of, parse
from plugins.dispatch.engines.vllm_bodies import (
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

    def __attrs_post_init__(self) -> None:
        moving = [child for child in self.children if child in _TRANSFERS]
        if self.connector == "multi" and len(moving) != 1:
            raise ValueError(f"one of the children has to be of {', '.join(_TRANSFERS)}, got {len(moving)}")
        if self.connector != "multi" and self.children:
            raise ValueError("children are those of the connector multi")
        if self.cache_hit_threshold is not None and self._moves_by in _TRANSFERS:
            raise ValueError("cache_hit_threshold is for workers that share a store: shared_storage or lmcache")

    @property
    def plan(self) -> Plan:
        """Mooncake's workers find each other by an id that both are told; all others one after the other."""
        return SIMULTANEOUS_PAIR if self._moves_by == "mooncake" else SERIAL_RELAY

    @property
    def _moves_by(self) -> str:
        if self.connector != "multi":
            return self.connector
        return next(child for child in self.children if child in _TRANSFERS)

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def alone(self, request: Request, /) -> bool:
        """Whether a handoff would serve one of several sequences, or lose what the answer says of the prompt."""
        data = request.payload.data
        many = self._moves_by in _TRANSFERS and has_many(data)
        own = request.endpoint.name
        return (
            many
            or wants_prompt(data)
            # Mooncake's workers drop what did not end for its length, and messages have no field against that
            or (own == "messages" and (thinks(data) or self._moves_by == "mooncake"))
            or (own == "responses" and uses_tools_itself(data))
        )

    def meet(self, _request: Request, partner: Partner, /) -> Handoff:
        """The names of one transfer of Mooncake's."""
        rank, engine_id, ranks = choose_rank(partner.told)
        id = f"xfer-{uuid4().hex}"
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
            params = orjson.dumps(handoff.fields[Role.GENERATION])
        else:
            notes: answers.Notes = handoff.notes
            params = append(notes.params, [("prompt_token_ids", notes.token_ids)] if notes.token_ids else [])
        members = [(answers.PARAMS, params)] if params else []
        if self._has_threshold(request):
            members.append((THRESHOLD, orjson.dumps(handoff.fields.get(THRESHOLD, 0))))
        return Body(append(request.payload.encode(), members))

    def trial(self, request: Request, /) -> Handoff | None:
        """The part of the prompt that a generation worker needs to have."""
        if not self._has_threshold(request):
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
                    return answers.read_relayed(answer, lease=self.lease_seconds, reuse=self._reuses(request))
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
        elif self._moves_by in _TRANSFERS:
            data[answers.PARAMS] = _ASKS_FOR_TRANSFER
        if self._reuses(request):
            data["return_token_ids"] = True
        if self._has_threshold(request):
            data[THRESHOLD] = 0
        return Body(encode(data), handoff.notes if handoff is not None else {})

    def _reuses(self, request: Request) -> bool:
        return self.reuse_prompt_token_ids and self._moves_by in ("nixl", "nixl_push") and may_reuse(request)

    def _has_threshold(self, request: Request) -> bool:
        return self.cache_hit_threshold is not None and request.endpoint in (CHAT_COMPLETIONS, COMPLETIONS)

    def _bootstrap(self, partner: Partner) -> str:
        return f"http://{host_of(partner.url)}:{partner.bootstrap_port or self.bootstrap_port}"


ENGINE = VllmEngine
