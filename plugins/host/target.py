"""The target of a request, taken apart; short ones repeat, and are remembered."""

from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import httptools

SHORT: Final = 256
"""Bytes up to which a target is one for `locate_short`."""


def locate_any(root: str, url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request's target below `root`, in text and as it came, and the query.

    Raises:
        httptools.HttpParserInvalidURLError: it is none.
    """
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return root + (unquote(path) if "%" in path else path), root.encode("ascii") + parsed.path, parsed.query or b""


locate_short = lru_cache(maxsize=256)(locate_any)
