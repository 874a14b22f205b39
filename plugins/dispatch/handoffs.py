"""What the YAML says of handoffs, and when one of them is not worth its while or no longer any good."""

from time import monotonic
from typing import Any

from attrs import Attribute, field, frozen, validators

from kernel import Rejection
from plugins.dispatch.client import Fault
from plugins.dispatch.engine import Handoff
from plugins.dispatch.policy import Facts


class SpentHandoff(Exception):
    """A handoff that may not be used again, in a request of which nothing was answered yet; a new one is to be made."""


class StaleHandoff(Fault):
    """A handoff was held for so long that nothing was sent with it."""

    answer = (504, "worker_timeout", "the worker did not answer in time")


def check_pause(_instance: object, attribute: "Attribute[Any]", value: float) -> None:
    """An attrs validator: a duration that ends, and may be none."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"{attribute.name} must not be negative, and finite, got {value!r}")


@frozen
class HandoffConfig:
    """When a request goes over two workers, and for how long the first one's work is good.

    `skip_context_below_tokens`: a prompt of which the generation worker would have to compute fewer tokens is
    served by it alone; 0 switches that off. What it has cached counts as computed where its policy knows that.
    `alone_without_context`: while no context worker is up, generation workers serve whole requests.
    `held_share`: the part of a handoff's lifetime after which it is not used any more but made anew, since the
    generation worker needs the rest. `needed_seconds`: a request with less time left to its deadline is declined
    before any work is done for it.
    """

    skip_context_below_tokens: int = field(default=0, validator=validators.ge(0))
    alone_without_context: bool = False
    held_share: float = field(default=0.5, validator=[validators.gt(0), validators.lt(1)])
    needed_seconds: float = field(default=0.0, validator=check_pause)

    def check_deadline(self, deadline: float) -> None:
        """Decline what cannot be done in time; blocks would be held for an answer that nobody gets.

        Raises:
            Rejection: 504, too little time is left.
        """
        if deadline - monotonic() <= self.needed_seconds:
            raise Rejection(504, "too little time is left to answer the request", "deadline_exceeded")

    def is_stale(self, handoff: Handoff) -> bool:
        """Whether a handoff was held for so long that it may be gone when the generation worker comes for it."""
        return handoff.lifetime is not None and monotonic() - handoff.made > handoff.lifetime * self.held_share

    def skips(self, facts: Facts) -> bool:
        """Whether so little of a prompt has to be computed that handing it over takes longer."""
        match = facts.match
        left = facts.prompt.tokens if match is None else match.prompt - match.cached
        return left < self.skip_context_below_tokens
