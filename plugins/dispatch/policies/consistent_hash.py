"""The worker that a key always leads to, unless it has too much to do."""

from attrs import Factory, field, frozen, validators

from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policies.circle import Circle, place_of
from plugins.dispatch.policies.identity import identity_of, opening_of, user_of
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Worker


@frozen
class ConsistentHash:
    """Choose by a key: the conversation's identity, else the `user` of the request, else how its prompt begins.

    A key leads to the same worker in every process and after every restart, and when a worker comes or goes only
    its own keys move. No worker is given more than `load_factor` times the mean load, rounded up: beyond that the
    next one on the circle is taken. `virtual_nodes`: points on the circle for a worker whose weight is 1.
    """

    load_factor: float = field(default=1.25, validator=[validators.ge(1), validators.le(100)])
    virtual_nodes: int = field(default=100, validator=[validators.ge(1), validators.le(1000)])
    _circle: Circle = field(
        init=False,
        default=Factory(lambda policy: Circle(policy.virtual_nodes), takes_self=True),
        eq=False,
        repr=False,
    )
    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)

    def choose(self, candidates: Candidates, facts: Facts, /) -> Worker:
        """The key's worker, or the next one; the least loaded one for a request without a key."""
        key = identity_of(facts.conversation) or user_of(facts.payload.data) or opening_of(facts.prompt)
        if key is None:
            return candidates.least(self._turn)
        roster = candidates.roster
        self._circle.update(roster)
        limit = self.load_factor * (roster.total + 1) / roster.shares.total
        place = place_of(key.encode(errors="surrogatepass"))
        return self._circle.find(place, candidates, limit) or candidates.least(self._turn)


POLICY = ConsistentHash
