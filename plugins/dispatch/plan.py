"""Which legs a request needs, and in which order."""

from typing import Final

from attrs import frozen

from plugins.dispatch.worker import Role


@frozen
class Plan:
    """The roles of a request's legs; the last leg's answer is the client's.

    Each leg is sent when the one before has answered with a handoff, or with the whole answer; legs that go
    `together` are all sent at once, and none of them is good without the others. `alone`: the last leg's worker
    can serve a whole request without a handoff.
    """

    legs: tuple[Role, ...]
    together: bool = False
    alone: bool = True


SINGLE_LEG: Final = Plan((Role.GENERATION,))
"""One worker serves the whole request."""

SERIAL_RELAY: Final = Plan((Role.CONTEXT, Role.GENERATION))
"""The context worker's answer says where the generation worker finds the KV cache."""

SIMULTANEOUS_PAIR: Final = Plan((Role.CONTEXT, Role.GENERATION), together=True)
"""Both workers are told how they find each other, and the KV cache passes between them."""

INSEPARABLE_PAIR: Final = Plan((Role.CONTEXT, Role.GENERATION), together=True, alone=False)
"""The same, between workers that serve nothing but halves of pairs."""
