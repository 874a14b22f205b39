"""What happens to one request: it is counted, may have to fail, and is otherwise the engine's."""

from collections.abc import Callable

import orjson
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call
from plugins.dispatch.embedded.stub.endings import ConnectionCut, Death, Rejection
from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.faults import HEADER, FaultBook, FaultRule, Traits, parse_header
from plugins.dispatch.embedded.stub.ledger import ABORTED, FAULTED, FINISHED, Ledger, Received
from plugins.dispatch.embedded.stub.wire import wire_format

_HEADER_REFUSAL_SECONDS = 1.0


@define(eq=False)
class Service:
    """Answers every request that is not for the control endpoints."""

    ledger: Ledger
    book: FaultBook
    fault_header: bool
    exit: Callable[[], None]
    refuse: Callable[[float], None]
    refusing: Callable[[], bool]
    calls: set[Call] = field(factory=set, init=False)

    async def answer(self, engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        """Count a request, answer it, and count how that ended."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        received = Received(request.method, request.path_qs, headers, wire_format(request.headers))
        call = Call(request, received, self.exit, self.refusing, self.book.cleared)
        self.calls.add(call)
        self.ledger.begin(received)
        outcome = ABORTED
        try:
            await self._serve(engine, call)
            outcome = FINISHED
        except ConnectionCut:
            outcome = FAULTED
        except (ConnectionError, web.RequestPayloadError):
            pass  # the client left while its request was read or its answer was written
        finally:
            self.calls.discard(call)
            status = call.response.status if call.response else None
            self.ledger.end(received, FAULTED if call.cut else outcome, status)
            engine.leave(call)
        return call.response or web.Response(status=500)

    async def _serve(self, engine: Engine, call: Call) -> None:
        call.received.raw = await call.request.read()
        try:
            rejection = _decode(engine, call)
            self._pick_fault(engine, call)
            self.ledger.notify()
            if await self._fail_early(engine, call):
                return
            if rejection is not None:
                raise rejection
            handler = engine.route(call.request.method, call.request.path)
            await handler(call)
        except Rejection as caught:
            await _send_rejection(engine, call, caught)
        except Death as death:
            await _send_rejection(engine, call, death.rejection)
            call.cut = True
            self.exit()

    def _pick_fault(self, engine: Engine, call: Call) -> None:
        asked = call.request.headers.get(HEADER) if self.fault_header else None
        if asked is None:
            traits = Traits(
                path=call.request.path,
                work=call.received.is_work,
                stream=call.body.get("stream") is True,
                context_only=engine.is_context(call.body),
            )
            call.fault, call.slow = self.book.pick(traits)
            return
        try:
            rule = parse_header(asked)
        except ValueError as error:
            raise engine.bad(f"{HEADER}: {error}") from None
        call.fault, call.slow = (None, rule.seconds) if rule.kind == "slow" else (rule, 0.0)

    async def _fail_early(self, engine: Engine, call: Call) -> bool:
        """Commit the faults that come before the engine has a say; say whether that was the answer."""
        fault = call.fault
        match fault and fault.kind:
            case "hang":
                await call.cleared.wait()
            case "die_before_headers":
                call.break_connection(reset=True)
            case "refuse" if fault is not None:
                self.refuse(fault.seconds or _HEADER_REFUSAL_SECONDS)
                call.break_connection(reset=True)
            case "status" if fault is not None:
                await _send_status(engine, call, fault)
                return True
            case "garbage":
                await call.send_bytes(b"<html>\x00 not what you asked for", 200, {"Content-Type": "application/json"})
                return True
        return False


def _decode(engine: Engine, call: Call) -> Rejection | None:
    """Decode the body of a request for work; a fault may still come before its rejection."""
    if call.request.method != "POST" or not engine.takes_body(call.request.path):
        return None
    try:
        content_type = call.request.headers.get("Content-Type")
        call.body = engine.decode(call.received.raw, call.received.wire, content_type)
    except Rejection as rejection:
        return rejection
    return None


async def _send_rejection(engine: Engine, call: Call, rejection: Rejection) -> None:
    body = engine.dress(call.request.path, rejection.body)
    await call.send_json(body, rejection.status, rejection.headers)


async def _send_status(engine: Engine, call: Call, fault: FaultRule) -> None:
    headers = {"Content-Type": "application/json", **fault.headers}
    match fault.body:
        case None:
            error = engine.error(fault.status, "this worker cannot serve the request now")
            body = orjson.dumps(engine.dress(call.request.path, error))
        case str():
            body = fault.body.encode()
        case _:
            body = orjson.dumps(fault.body)
    await call.send_bytes(body, fault.status, headers)
