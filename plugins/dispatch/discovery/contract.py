"""The contract of a discovery, which finds the workers of a pool for as long as somebody uses the pool."""

from collections.abc import Sequence
from typing import Protocol

from plugins.dispatch.worker_config import WorkerConfig


class Audience(Protocol):
    """Hears what a discovery finds; in the event loop's thread alone."""

    def publish(self, workers: Sequence[WorkerConfig]) -> None:
        """Name all workers that there are now; whoever is not among them any more leaves.

        None at all, one that is named twice, and bad addresses are refused as if `complain` had been called.
        """
        ...

    def complain(self, problems: Sequence[str]) -> None:
        """Say why it is not known who the workers are, once for each reason; those that were known stay."""
        ...


class Discovery(Protocol):
    """An attrs class whose `init` fields are its configuration. Equal ones are followed once for each pool."""

    async def follow(self, audience: Audience, /) -> None:
        """Tell who the workers are, at once and whenever that has changed, until cancelled.

        It may return when nothing will ever change. What it raises is a complaint, and it is called again later.
        """
        ...
