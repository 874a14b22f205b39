"""The cases in which the peers take part, and what is to be reached in each."""

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from bench.cases import HELD, MIDDLE, PACED, SGLANG_PAIRS, SMALL, TRTLLM_PAIRS, VLLM_PAIRS, Case, Setup

ROUND_ROBIN: Final = Setup("round robin", "one", 2, "round_robin")
PREFIX: Final = Setup("prefix-aware", "one", 2, "prefix")
"""Two workers, because vllm-router asks every worker for the tokens of each prompt when it looks for a prefix."""

MEMORY: Final = "memory"


@frozen
class Goal:
    """What the kernel is to reach: at most so much, and less than each peer, or no more.

    `less` and `no_more` say whether it is compared with the peers; where none takes part, with those of `rivals`.
    """

    most: float | None = None
    less: bool = False
    no_more: bool = False
    rivals: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [] if self.most is None else [f"{self.most:g} or less"]
        if self.less or self.no_more:
            parts.append("below all peers" if self.less else "no more than any peer")
        return ", ".join(parts)


def _pairs(setup: Setup) -> Iterator[Case]:
    start, title = setup.model, f"two legs, {setup.name}"
    yield Case(start, f"{title}, 500 B, 64 at once", setup, SMALL, 64, 8_000, 2_000)
    yield Case(f"{start}_32k", f"{title}, 32 KB, 64 at once", setup, MIDDLE, 64, 5_000, 1_000)
    yield Case(f"{start}_256", f"{title}, 500 B, 256 at once", setup, SMALL, 256, 8_000, 2_000)
    yield Case(f"{start}_32k_256", f"{title}, 32 KB, 256 at once", setup, MIDDLE, 256, 5_000, 1_000)


CASES: Final = (
    *_pairs(VLLM_PAIRS),
    *_pairs(SGLANG_PAIRS),
    *_pairs(TRTLLM_PAIRS),
    Case("round_robin", "one leg, round robin, 500 B, 64 at once", ROUND_ROBIN, SMALL, 64, 12_000, 3_000),
    Case("round_robin_256", "one leg, round robin, 500 B, 256 at once", ROUND_ROBIN, SMALL, 256, 12_000, 3_000),
    Case("paced", "streams, 10 ms between tokens, 256 at once", ROUND_ROBIN, SMALL, 256, 768, 256, PACED),
    Case("prefix", "one leg, prefix-aware, 500 B, 64 at once", PREFIX, SMALL, 64, 12_000, 3_000),
    Case("prefix_unique", "the same, each prompt another", PREFIX, SMALL, 64, 12_000, 3_000, unique=True),
    Case("prefix_256", "one leg, prefix-aware, 500 B, 256 at once", PREFIX, SMALL, 256, 12_000, 3_000),
    Case(MEMORY, "resident memory", ROUND_ROBIN, SMALL, 1_000, 1_000, 0, HELD, kind="memory"),
)

_SHORT: Final = Goal(80, less=True)
_LONG: Final = Goal(125, less=True)

GOALS: Final = {
    "vllm": _SHORT,
    "vllm_32k": _LONG,
    "sglang": _SHORT,
    "sglang_32k": _LONG,
    "trtllm": Goal(80, less=True, rivals=("vllm", "sglang")),
    "trtllm_32k": Goal(125, less=True, rivals=("vllm_32k", "sglang_32k")),
    "round_robin": Goal(60),
    "prefix": Goal(70, less=True),
    "prefix_unique": Goal(70, less=True),
    "paced": Goal(22, no_more=True),
    "memory_rest": Goal(76.3),  # 80 MB
    "memory_streams": Goal(143.0),  # 150 MB
}
"""Of the medians, by the case."""

TAIL_GOALS: Final = {"round_robin_256": Goal(less=True), "prefix_256": Goal(less=True)}
"""Of the 99th percentile of the latencies."""

NEVER: Final = {
    ("vllm", "sglang-router"): "it has no mode for pairs of vLLM",
    ("sglang", "vllm-router"): "it has no mode for pairs of SGLang",
    ("trtllm", "smg"): "it has no mode for pairs of TensorRT-LLM",
    ("trtllm", "vllm-router"): "it has no mode for pairs of TensorRT-LLM",
    ("trtllm", "sglang-router"): "it has no mode for pairs of TensorRT-LLM",
}
"""Why a peer does not take part in the cases of a model."""
