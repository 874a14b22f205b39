"""The contract of what KV-cache events come from, and the libraries that it takes."""

from typing import Protocol

from plugins.dispatch.policies.trtllm_hashes import MISSING as MISSING_BLAKE3
from plugins.dispatch.policies.zmq_sockets import MISSING as MISSING_ZMQ
from plugins.dispatch.worker import Worker


class KvSource(Protocol):
    """Runs from its making until `stop`, and enters what it hears into the holdings of workers."""

    def turned(self, worker: Worker) -> None:
        """Hear that a worker takes requests from now on."""
        ...

    def left(self, worker: Worker) -> None:
        """Hear that a worker is gone."""
        ...

    def finished(self, worker: Worker) -> None:
        """Hear that a worker is done with a request, and may have other blocks than before."""
        ...

    async def stop(self) -> None:
        """End."""
        ...


def check_libraries(source: str) -> None:
    """Look whether all is installed that a source needs.

    Raises:
        ValueError: it is not.
    """
    missing = ["blake3"] if MISSING_BLAKE3 else []
    if MISSING_ZMQ and source == "zmq":
        missing.append("pyzmq")
    if missing:
        names = " and ".join(missing)
        raise ValueError(f"kv_events needs {names}, of the extra `kv-events`: pip install 'disagg-kernel[kv-events]'")
