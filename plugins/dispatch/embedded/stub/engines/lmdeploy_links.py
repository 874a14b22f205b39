"""The other workers that an LMDeploy worker knows, and how far each has come to be connected."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from attrs import define, field

from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.ledger import Ledger

_CONFIG: Final = {
    "tp_size": 1,
    "ep_size": 1,
    "dp_size": 1,
    "pp_size": None,
    "dp_rank": 0,
    "block_size": 64,
    "num_cpu_blocks": 0,
    "num_gpu_blocks": 1024,
}
_INITIALIZE: Final = ("local_engine_id", "local_engine_config", "remote_engine_id", "remote_engine_config", "protocol")
_CONNECT: Final = ("protocol", "remote_engine_id", "remote_engine_endpoint_info", "remote_kvtransfer_endpoint_info")
_DROP: Final = ("engine_id", "remote_engine_id")
_SUCCESS: Final = 1
_RDMA: Final = 2

Body = Mapping[str, Any]


@define(eq=False)
class LinkBook:
    """By their names, which are URLs; False while one is only got ready for."""

    ledger: Ledger
    _known: dict[str, bool] = field(factory=dict, init=False)

    def describe(self) -> str:
        """The worker's configuration, as JSON of its own."""
        return orjson.dumps(_CONFIG).decode()

    def is_connected(self, name: str) -> bool:
        """Whether a KV cache can come from there, or go there."""
        return self._known.get(name, False)

    def initialize(self, body: Body) -> dict[str, object]:
        """Get ready; a second time without an end between them leaks what the first one has opened."""
        _need(body, _INITIALIZE)
        if body["local_engine_config"] != _CONFIG or body["protocol"] != _RDMA:
            raise Rejection(422, {"detail": "not this worker's configuration"})
        name = body["remote_engine_id"]
        if name in self._known:
            self.ledger.violate("link_made_twice", name)
        self._known[name] = False
        endpoint = {"protocol": _RDMA, "endpoint_info": orjson.dumps({"for": name}).decode()}
        zmq = {"zmq_address": "tcp://127.0.0.1:9"}
        return {"status": _SUCCESS, "engine_endpoint_info": zmq, "kvtransfer_endpoint_info": [endpoint]}

    def connect(self, body: Body) -> dict[str, object]:
        """Connect to one that is got ready for."""
        _need(body, _CONNECT)
        name = body["remote_engine_id"]
        if name not in self._known:
            raise Rejection(500, {"detail": "Internal Server Error"})
        if not body["remote_kvtransfer_endpoint_info"] or "zmq_address" not in body["remote_engine_endpoint_info"]:
            raise Rejection(422, {"detail": "no endpoint"})
        self._known[name] = True
        return {"status": _SUCCESS}

    def drop(self, body: Body) -> dict[str, object]:
        """End a connection."""
        _need(body, _DROP)
        if self._known.pop(body["remote_engine_id"], None) is None:
            raise Rejection(500, {"detail": "Internal Server Error"})
        return {"success": True}


def _need(body: Body, names: tuple[str, ...]) -> None:
    missing = [name for name in names if body.get(name) is None]
    if missing:
        raise Rejection(422, {"detail": [{"type": "missing", "loc": ["body", name]} for name in missing]})
