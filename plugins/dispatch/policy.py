"""The contract of a policy, which chooses the worker of a leg."""

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from plugins.dispatch.worker import Role, Worker
from plugins.slots import Conversation, Payload


@frozen(eq=False)
class Facts:
    """What a policy may know of the request that it chooses for."""

    role: Role
    payload: Payload
    conversation: Conversation | None = None


class Policy(Protocol):
    """An attrs class whose `init` fields are its configuration; each pool has an instance of its own."""

    def choose(self, candidates: Sequence[Worker], facts: Facts, /) -> Worker:
        """One of `candidates`, which are never empty and in the order of the configuration.

        Called on every attempt and does no I/O. The load of the chosen worker is counted before the next call.
        """
        ...
