"""Which legs a request needs, and in which order."""

from typing import Final

from attrs import frozen

from plugins.dispatch.worker import Role


@frozen
class Plan:
    """The roles of a request's legs; each leg is sent when the one before has answered.

    The last leg's answer is the client's. What a leg before it answers is a handoff to the next one, or
    turns out to be the whole answer already.
    """

    legs: tuple[Role, ...]


SINGLE_LEG: Final = Plan((Role.GENERATION,))
"""One worker serves the whole request."""

SERIAL_RELAY: Final = Plan((Role.CONTEXT, Role.GENERATION))
"""The context worker's answer says where the generation worker finds the KV cache."""
