"""SGLang: both workers get the same request at once, and meet in a room."""

import random
import re
from os import urandom
from typing import Any, ClassVar, Final

import orjson
from attrs import Attribute, field, frozen, validators

from kernel import Secret
from plugins.dispatch.apis import USUAL, Apis, check_apis
from plugins.dispatch.engine import Body, Handoff, Notice, Partner, Reading, Request
from plugins.dispatch.engines.bodies import append, count_prompts, encode, host_of, parse
from plugins.dispatch.engines.sglang_answers import CONCERN, clean, read_context
from plugins.dispatch.headers import check_key
from plugins.dispatch.plan import INSEPARABLE_PAIR, Plan
from plugins.dispatch.worker import Role

_ID_HEADER: Final = "x-override-rid"
"""By which workers take an id for a request of the messages API, whose body has no field for it."""

_ROOM_BITS: Final = 62
"""Of a room's number, which has 63: those of a request's further sequences have to fit in."""


def _check_port(_instance: object, attribute: "Attribute[Any]", value: int | None) -> None:
    if value is not None and not 0 < value < 1 << 16:
        raise ValueError(f"{attribute.name} is from 1 to 65535, got {value}")


_APIS: Final[Apis] = (*USUAL, "responses", "messages", "count_tokens", "tokenize", "detokenize")


@frozen
class SglangEngine:
    """The context worker gives its KV cache away in a room that the generation worker enters.

    `bootstrap_port`: where generation workers find context workers, by default 8998; null leaves it to the workers'
    own settings. `bootstrap_on_api_port`: for workers that keep their rooms on the port of their API. A worker of
    its own `bootstrap_port` goes before both. `admin_key`: the workers' `--admin-api-key`; with such a key they stop
    a request only for who has it, and hold its memory for minutes otherwise. `apis`: what the workers answer.
    """

    name: ClassVar[str] = "sglang"
    plan: ClassVar[Plan] = INSEPARABLE_PAIR
    concern: ClassVar["re.Pattern[bytes]"] = CONCERN

    bootstrap_port: int | None = field(default=8998, validator=_check_port)
    bootstrap_on_api_port: bool = False
    admin_key: Secret | None = field(default=None, validator=validators.optional(check_key))
    apis: Apis = field(default=_APIS, validator=check_apis)

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def meet(self, request: Request, partner: Partner, /) -> Handoff:
        """A room of its own for each sequence, and an id by which both workers can be told to stop.

        One number stands for as many sequences as there are, each in the room of the next number; a list has a room
        for each prompt, and would be repeated for each further choice.
        """
        data, id = request.payload.data, urandom(16).hex()
        room = random.getrandbits(_ROOM_BITS)  # a name, no secret
        place: dict[str, Any] = {"bootstrap_host": host_of(partner.url), "bootstrap_port": self._port(partner)}
        prompts = count_prompts(data.get("prompt"))
        if prompts > 1 and _count_choices(data) == 1:
            place = {name: [value] * prompts for name, value in place.items()}
            place["bootstrap_room"] = list(range(room, room + prompts))
        else:
            place["bootstrap_room"] = room
        if request.endpoint.name == "responses":
            id = f"resp_{id}"  # which is also that of the answer
            return Handoff({"rid": id, "request_id": id, **place})
        return Handoff({"rid": f"k-{id}", **place})

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """The client's request with the room; a context worker does not stream, so that its errors have a status."""
        if handoff is None:
            return Body(request.payload.encode())
        headers = {_ID_HEADER: handoff.fields["rid"]} if request.endpoint.name == "messages" else {}
        if role is Role.GENERATION:
            return Body(append(request.payload.encode(), orjson.dumps(handoff.fields)), headers)
        data = {**request.payload.data, **handoff.fields, "stream": False}
        data.pop("stream_options", None)
        return Body(encode(data), headers)

    def read(self, role: Role, request: Request, answer: bytes, handoff: Handoff | None = None, /) -> Reading:
        """Whether the context worker did its part; the generation worker's answer."""
        if role is Role.CONTEXT:
            return read_context(answer, wants_none=request.payload.data.get("max_output_tokens") == 0)
        if CONCERN.search(answer) is None:
            return answer
        return orjson.dumps(clean(parse(answer, "generation"), handoff))

    def edit(self, _request: Request, handoff: Handoff | None, _name: bytes, data: bytes, /) -> bytes:
        """An event of a stream with what the client may see."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return data
        return orjson.dumps(clean(value, handoff)) if isinstance(value, dict) else data

    def abort(self, _role: Role, handoff: Handoff, /) -> Notice:
        """What stops a leg: the other half of a pair waits for minutes otherwise."""
        headers = {} if self.admin_key is None else {"authorization": f"Bearer {self.admin_key.reveal()}"}
        body = {"rid": handoff.fields["rid"], "abort_all": False}
        return Notice("/abort_request", orjson.dumps(body), headers)

    def _port(self, partner: Partner) -> int | None:
        if partner.bootstrap_port is not None:
            return partner.bootstrap_port
        if self.bootstrap_on_api_port:
            return int(partner.url.rpartition("://")[2].partition("/")[0].rpartition(":")[2])
        return self.bootstrap_port


def _count_choices(data: dict[str, Any]) -> int:
    choices = data.get("n")
    return choices if type(choices) is int and choices > 0 else 1


ENGINE = SglangEngine
