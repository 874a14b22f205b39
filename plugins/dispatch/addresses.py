"""Addresses of workers: which are accepted, and when two are the same."""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")


@lru_cache(maxsize=1 << 14)  # every change of a list of workers brings most of them again
def normal_url(url: str) -> str:
    """The one form of a worker's address: lower case, with its port, without a slash at the end.

    A path in front of the API's own is allowed, for workers behind a proxy.

    Raises:
        ValueError: it is no address of a worker. The message repeats nothing that may be a credential.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("a worker's address is plain ASCII without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("a worker's address has a bad host or port") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("a worker's address must not hold credentials; use api_key")
    if parts.scheme not in _PORTS or parts.hostname is None:
        raise ValueError(f"a worker's address is http://host:port or https://host:port, got {url!r:.120}")
    if not _HOST.fullmatch(parts.hostname) or port == 0:
        raise ValueError(f"a worker's address has a bad host or port: {url!r:.120}")
    if "?" in url or "#" in url or not _PREFIX.fullmatch(parts.path):
        raise ValueError(f"a worker's address has no query and a plain path: {url!r:.120}")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        raise ValueError(f"leave out the /v1 of a worker's address, it is added: {url!r:.120}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}{path}"
