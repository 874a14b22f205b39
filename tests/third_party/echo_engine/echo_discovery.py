"""A discovery that finds so many workers on one host, at ports that follow each other."""

from attrs import frozen

from plugins.dispatch.discovery.contract import Audience
from plugins.dispatch.worker_config import WorkerConfig


@frozen
class PortRange:
    """The workers are at `host`, the first one of `count` at the port `first`."""

    host: str
    first: int
    count: int = 1

    async def follow(self, audience: Audience, /) -> None:
        """Name them once; they never change."""
        ports = range(self.first, self.first + self.count)
        audience.publish([WorkerConfig(f"http://{self.host}:{port}") for port in ports])


DISCOVERY = PortRange
