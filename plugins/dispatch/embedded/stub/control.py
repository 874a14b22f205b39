"""The control endpoints of a stub worker: its state, its faults, and what its engine offers others."""

from typing import TYPE_CHECKING

import orjson
from aiohttp import web
from attrs import asdict, evolve

from plugins.dispatch.embedded.stub.faults import FaultRule, parse_rule
from plugins.dispatch.embedded.stub.ledger import StubState
from plugins.dispatch.embedded.stub.side import answer_side

if TYPE_CHECKING:
    from plugins.dispatch.embedded.stub.server import Stub

PREFIX = "/_stub/"


async def answer_control(stub: "Stub", request: web.BaseRequest) -> web.Response:
    """Answer a request under `/_stub/`."""
    match request.method, request.path.removeprefix(PREFIX):
        case "GET", "state":
            return _json(show(stub.state()))
        case "GET", "faults":
            return _json([rule.to_json() for rule in stub.faults])
        case "POST", "faults":
            return _add_faults(stub, await request.read())
        case "DELETE", "faults":
            stub.clear_faults()
            return _json({})
        case "POST", "reset":
            stub.reset()
            return _json({})
        case _:
            return await answer_side(stub.engine.side, request)


def show(state: StubState) -> dict[str, object]:
    """Give a state in the form that the control endpoint shows."""
    plain = asdict(evolve(state, last_requests=()))
    return {**plain, "last_requests": [received.to_json() for received in state.last_requests]}


def _add_faults(stub: "Stub", raw: bytes) -> web.Response:
    """Add one rule or a list of them; if one is wrong, none is added."""
    try:
        value = orjson.loads(raw)
        rules: list[FaultRule] = [parse_rule(item) for item in (value if isinstance(value, list) else [value])]
    except ValueError as error:
        return _json({"message": str(error)}, 400)
    for rule in rules:
        stub.add_rule(rule)
    return _json([rule.to_json() for rule in stub.faults])


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, content_type="application/json")
