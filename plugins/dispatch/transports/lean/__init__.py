"""Our own HTTP/1.1 client, for workers with a plain `http://` address.

`client` sends, over a connection of a `pool`; `request` writes the head, `decoder` and `head` read the answer's bytes,
unless `repeats` knows what they say, and `response` hands them on.
"""

from plugins.dispatch.transports.lean.client import LeanClient

__all__ = ["LeanClient"]
