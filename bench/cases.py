"""The cases: what is asked, by how many at once, and how often."""

from typing import Final

from attrs import evolve, frozen

from bench.bodies import ONE, TWO

TOKENS: Final = 100
DELAY_SECONDS: Final = 0.01

QUICK_TOKENS: Final = 5
QUICK_DELAY_SECONDS: Final = 0.001


@frozen
class Case:
    """One load: `warmup` and then `requests` requests of `size` bytes over `connections`, asked anew once answered.

    `tokens` is the length of a stream, 0 for whole answers.
    """

    name: str
    title: str
    model: str
    size: int
    connections: int
    requests: int
    warmup: int
    tokens: int = 0

    @property
    def unit(self) -> str:
        """What the cost is told for."""
        return "token" if self.tokens else "request"

    @property
    def units(self) -> int:
        """How many of them a run has."""
        return self.requests * (self.tokens or 1)

    def quick(self) -> "Case":
        """The same with so few requests that the figures mean nothing."""
        connections = min(self.connections, 8)
        tokens = QUICK_TOKENS if self.tokens else 0
        return evolve(self, connections=connections, requests=connections * 3, warmup=connections, tokens=tokens)


CASES: Final = (
    Case("one_leg", "one leg, 500 B, 64 at once", ONE, 500, 64, 15_000, 3_000),
    Case("one_leg_alone", "one leg, 500 B, 1 at once", ONE, 500, 1, 4_000, 500),
    Case("one_leg_large", "one leg, 32 KB, 64 at once", ONE, 32 * 1024, 64, 12_000, 2_000),
    Case("two_legs", "two legs, 500 B, 64 at once", TWO, 500, 64, 8_000, 2_000),
    Case("paced_stream", "stream of 100 tokens, 10 ms apart, 64 at once", ONE, 500, 64, 192, 64, TOKENS),
)
