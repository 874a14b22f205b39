"""The standalone application: the middleware round a Starlette router with health, version and further routes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from kernel.asgi import KernelMiddleware
from kernel.runtime import Runtime


def build_app(runtime: Runtime, routes: Sequence[BaseRoute] = ()) -> KernelMiddleware:
    """An ASGI application that starts and stops `runtime` with its lifespan.

    Beside the endpoints it answers `/health` (503 with the reasons when not ready), `/livez`, `/version`, and `routes`.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await runtime.start()
        try:
            yield
        finally:
            await runtime.stop()

    async def health(_request: Request) -> Response:
        reasons = runtime.unready()
        return JSONResponse({"ready": False, "reasons": reasons}, 503) if reasons else Response()

    constants = {"/livez": Response(), "/version": JSONResponse({"version": version("disagg-kernel")})}
    own = [Route("/health", health), *(Route(path, answer, methods=["GET"]) for path, answer in constants.items())]
    return KernelMiddleware(Starlette(routes=[*own, *routes], lifespan=lifespan), runtime=runtime)
