"""Asking another worker for something."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson


class PeerError(Exception):
    """Another worker is not there, or declines."""


def peer_session() -> aiohttp.ClientSession:
    """Make a session that keeps no connection, so that none is stale after the other worker's restart."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))


async def ask_peer(
    session: aiohttp.ClientSession, url: str, wanted: Mapping[str, object] | None, seconds: float
) -> dict[str, Any]:
    """Ask another worker, with a body or without one; raises `PeerError`, or `TimeoutError` after some seconds."""
    method = "GET" if wanted is None else "POST"
    try:
        async with session.request(method, url, json=wanted, timeout=aiohttp.ClientTimeout(total=seconds)) as response:
            answer = orjson.loads(await response.read())
            if response.status != 200 or not isinstance(answer, dict):
                raise PeerError(f"status {response.status}")
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PeerError(type(error).__name__) from None
    return answer


def address(host: str, port: object) -> str:
    """Make the URL of another worker out of its host and port."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"
