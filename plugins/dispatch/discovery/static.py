"""Workers that the configuration names itself."""

from attrs import field, frozen

from plugins.dispatch.discovery.contract import Audience
from plugins.dispatch.worker_config import Workers, check_workers, normal_workers


@frozen
class StaticDiscovery:
    """`workers` are all there are, `http://host:port` or `{url, weight, bootstrap_port, draining}` each."""

    workers: Workers = field(validator=check_workers)

    async def follow(self, audience: Audience, /) -> None:
        """Name them once."""
        audience.publish(normal_workers(self.workers))


DISCOVERY = StaticDiscovery
