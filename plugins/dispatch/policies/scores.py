"""Weighs what is cached on workers against the load on them."""

from collections.abc import Iterable

from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.levels import next_in
from plugins.dispatch.worker import Worker


def best(
    candidates: Candidates, groups: Iterable[tuple[float, int]], load_weight: float, turn: Turn
) -> tuple[Worker, float]:
    """The candidate with the most cached blocks, less `load_weight` for each request on it, and its cached blocks.

    `groups` has those with the same number of blocks together, the highest number first. Whoever is in none of
    them has no block, and is only of interest if it is the least loaded. Among equals, each in turn.
    """
    levels = candidates.roster.levels
    lowest, found = levels.lowest(candidates.mask)
    score, depth = -load_weight * lowest, 0.0
    for cached, mask in groups:
        if cached - load_weight * lowest <= score:
            break  # not even one that is as idle as the idlest would do better
        height, level = levels.lowest(mask)
        if level and cached - load_weight * height > score:
            score, depth, found = cached - load_weight * height, cached, level
    turn.last = next_in(found, turn.last)
    return candidates.roster.places[turn.last], depth
