"""What is answered beside the chain: metrics, and an error object for every address that does not exist."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from kernel import Endpoint, Rejection
from plugins.endpoints import MESSAGES
from plugins.envelopes import anthropic_error, openai_error
from plugins.metrics import exposition

METRICS: Final = ("/metrics", "/metrics/", "/prometheus/metrics", "/prometheus/metrics/")
GREETINGS: Final = ("/", "/api/hello")
"""Where clients look whether anybody is there, as Claude Code does before its first request."""

READABLE: Final = ("/health", "/livez", "/version", *METRICS, *GREETINGS)
"""Addresses beside the chain, which answer to GET and HEAD."""

PATH_CHARACTERS: Final = 200
METHOD_CHARACTERS: Final = 20


def build_routes(endpoints: Sequence[Endpoint]) -> list[BaseRoute]:
    """The routes that come after the application's own; the last one takes every path."""
    known: dict[str, set[str]] = {path: {"GET", "HEAD"} for path in READABLE}
    for endpoint in endpoints:
        known.setdefault(endpoint.path, set()).add(endpoint.method)
    allowed = {path: ", ".join(sorted(methods)) for path, methods in known.items()}
    above = [endpoint.path for endpoint in endpoints if endpoint.path.endswith("/")]
    metrics = (Route(path, tell_metrics) for path in METRICS)
    greetings = (Route(path, greet) for path in GREETINGS)
    return [*metrics, *greetings, Unknown(allowed, above)]


async def greet(_request: Request) -> Response:
    """Answer that somebody is there, whatever the state of the workers."""
    return Response("{}", media_type="application/json")


async def tell_metrics(_request: Request) -> Response:
    """Answer with the metrics of every process of the instance."""
    text, kind = exposition()
    return Response(text, headers={"content-type": kind})


class Unknown(BaseRoute):
    """Takes every request that is left; answers 404, or 405 where the path exists, with an error in the API's shape."""

    def __init__(self, allowed: Mapping[str, str], above: Iterable[str] = ()) -> None:
        """`allowed` has the methods of each path that exists, as in the header `allow`; all below `above` exist too."""
        self._allowed, self._above = allowed, tuple(above)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a scope is for this route; targets without a slash are, as in `OPTIONS *`."""
        return Match.FULL if scope["type"] == "http" else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; its body is not read."""
        path = scope["path"]
        asked = f"{_printable(scope['method'], METHOD_CHARACTERS)} {_printable(path, PATH_CHARACTERS)}"
        headers = {}
        known = (
            path if path in self._allowed else next((above for above in self._above if path.startswith(above)), None)
        )
        if known is not None:
            headers["allow"] = self._allowed[known]
            error = Rejection(405, f"{asked}: this path answers to {self._allowed[known]}", "method_not_allowed")
        else:
            error = Rejection(404, f"there is no {asked}", "not_found")
        anthropic = path == MESSAGES.path or path.startswith(f"{MESSAGES.path}/")
        shape = anthropic_error(error, uuid4().hex) if anthropic else openai_error(error)
        response = Response(orjson.dumps(shape), error.status, headers, "application/json")
        if scope["method"] == "HEAD":
            response.body = b""
        await response(scope, receive, send)


def _printable(text: str, characters: int) -> str:
    cut = text if len(text) <= characters else f"{text[:characters]}..."
    return "".join(character if character.isprintable() else "?" for character in cut)
