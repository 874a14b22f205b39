"""The handoff object of vLLM's NIXL connectors: what it looks like in each release, and what is wrong with one."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from attrs import frozen

from plugins.dispatch.embedded.stub.fields import is_integer

Version = tuple[int, ...]

NEWEST: Final = (0, 32, 0)
# Above what a double holds exactly: a relay that changes numbers is noticed.
_REGISTRATION: Final = (1 << 53) + 1


def parse_version(text: str) -> Version:
    """Make numbers of a release's name; the newest one that was looked at by default."""
    return tuple(map(int, text.split("."))) if text else NEWEST


def wants_decode(body: Mapping[str, Any]) -> bool:
    """Whether a request leaves the decoding to another worker."""
    params = body.get("kv_transfer_params")
    return isinstance(params, dict) and params.get("do_remote_decode") is True


def wants_prefill(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the handoff of a request whose prefill was done elsewhere."""
    params = body.get("kv_transfer_params")
    return params if isinstance(params, dict) and params.get("do_remote_prefill") is True else None


@frozen
class Location:
    """Where the blocks of one request are."""

    engine_id: str
    request_id: str
    host: str
    port: int
    blocks: list[int]
    tokens: int
    cached: int

    def describe(self, version: Version, *, push: bool) -> dict[str, object]:
        """Make the object that a prefill answer of a release carries; with `push` it does not name the blocks."""
        fields: dict[str, object] = {"do_remote_prefill": True, "do_remote_decode": False}
        if not push:
            fields["remote_block_ids"] = [self.blocks] if version >= (0, 20) else self.blocks
        fields |= {"remote_engine_id": self.engine_id, "remote_request_id": self.request_id}
        fields |= {"remote_host": self.host, "remote_port": self.port, "tp_size": 1}
        if version >= (0, 29):
            fields |= {"dcp_size": 1, "pp_size": 1}
        if version >= (0, 23):
            fields["remote_num_tokens"] = self.tokens
        if version >= (0, 26):
            fields["remote_blocks_expiry_time"] = None
        if version >= (0, 29):
            fields |= {"transfer_mode": "push" if push else "pull", "remote_prefill_cached_tokens": self.cached}
        if version >= (0, 33):
            fields["remote_registration_generation"] = _REGISTRATION
        return fields


def problem(params: Mapping[str, Any], *, push: bool) -> str | None:
    """Say what of a handoff is missing without which a worker does not know where to fetch."""
    texts = ("remote_engine_id", "remote_request_id", "remote_host")
    missing = [name for name in texts if not isinstance(params.get(name), str) or not params[name]]
    missing += [name for name in ("remote_port", "tp_size") if not is_integer(params.get(name))]
    if not push and not isinstance(params.get("remote_block_ids"), list):
        missing.append("remote_block_ids")
    return f"without {', '.join(missing)}" if missing else None


def same(given: object, returned: object) -> bool:
    """Whether a handoff came back exactly as it was given, whatever the order of its fields."""
    return orjson.dumps(given, option=orjson.OPT_SORT_KEYS) == orjson.dumps(returned, option=orjson.OPT_SORT_KEYS)
