"""What a context worker of vLLM's Mooncake connector tells of itself."""

import random
from typing import Any

from plugins.dispatch.client import MalformedFault


def choose_rank(told: Any) -> tuple[str, str, int]:
    """One of a worker's data-parallel ranks: its number, its engine's id, and how many there are.

    Raises:
        MalformedFault: 502, it told of none.
    """
    ranks = [
        (rank, engine["engine_id"])
        for rank, engine in (told.items() if isinstance(told, dict) else ())
        if rank.isdecimal() and isinstance(engine, dict) and isinstance(engine.get("engine_id"), str)
    ]
    if not ranks:
        raise MalformedFault("it tells of no engine", "the context worker tells nothing of itself")
    rank, engine_id = random.choice(ranks)  # noqa: S311  # load is spread, nothing is guarded
    return rank, engine_id, len(ranks)
