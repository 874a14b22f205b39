"""What a TensorRT-LLM context worker gives generation workers: the blocks that it holds, or those to come."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import web
from attrs import define

from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.engines.trtllm_context import ContextPhase, Mark
from plugins.dispatch.embedded.stub.fields import INTEGER, STRING, TOKEN_IDS, Table, report, required
from plugins.dispatch.embedded.stub.handoffs import FETCHED
from plugins.dispatch.embedded.stub.pairing import TakenError

FETCH_PATH: Final = "/_stub/kv/fetch"
RECEIVE_PATH: Final = "/_stub/kv/receive"

_FETCH: Final = Table(
    {
        **required(INTEGER, "ctx_request_id"),
        **required(STRING, "encoded_opaque_state"),
        **required(TOKEN_IDS, "prompt_token_ids"),
    }
)
_RECEIVE: Final = Table({**required(INTEGER, "disagg_request_id"), **required(TOKEN_IDS, "prompt_token_ids")})


@define(eq=False)
class ContextSide:
    """Answers generation workers; what is wrong with a fetch is a status and a word for it."""

    context: ContextPhase

    async def answer(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer a fetch of what is held, or wait for what a request that runs will give."""
        if path == FETCH_PATH:
            return self._fetch(await _read(request, _FETCH))
        body = await _read(request, _RECEIVE)
        try:
            given: Any = await self.context.pairing.join(body["disagg_request_id"])
        except TakenError:
            raise Rejection(409, {"message": "another generation worker waits for it", "what": "taken"}) from None
        self._compare(given["prompt"], body)
        return web.json_response({"cached": given["cached"]})

    def _fetch(self, body: Mapping[str, Any]) -> web.Response:
        """Give the blocks of one handoff away; a state or a prompt that is not its own leaves them where they are."""
        handoffs, number = self.context.engine.handoffs, body["ctx_request_id"]
        handoff = handoffs.find(number)
        if handoff is None:
            ending = handoffs.ending(number)
            raise Rejection(404, {"message": f"request {number} is {ending}", "what": ending})
        if not isinstance(handoff.mark, Mark) or handoff.mark.state != body["encoded_opaque_state"]:
            raise Rejection(403, {"message": f"the state is not that of request {number}", "what": "state"})
        self._compare(handoff.prompt, body)
        handoffs.end(handoff, FETCHED)
        return web.json_response({})

    def _compare(self, prompt: tuple[int, ...], body: Mapping[str, Any]) -> None:
        if prompt != tuple(body["prompt_token_ids"]):
            raise Rejection(409, {"message": "the prompt is not the one that is held", "what": "prompt"})


async def _read(request: web.BaseRequest, table: Table) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        raise Rejection(400, {"message": "the body is not JSON"}) from None
    problems = list(table.problems(body))
    if problems:
        raise Rejection(400, {"message": report(problems)})
    return dict(body)
