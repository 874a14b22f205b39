"""The cases: which workers there are, what is asked, by how many at once, and how often."""

from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

from bench.bodies import ONE, SGLANG, TRTLLM, VLLM

TOKENS: Final = 100
QUICK_TOKENS: Final = 5

UNPACED: Final = 0
PACED: Final = 10_000
HELD: Final = 50_000
PAUSES: Final = (UNPACED, PACED, HELD)
"""Microseconds between the tokens of a stream."""

Unit: TypeAlias = Literal["us/request", "us/token", "MiB"]
Kind: TypeAlias = Literal["load", "reload", "plugins", "memory"]


@frozen
class Setup:
    """Which workers a gateway is in front of, and what it is told of them beside their URLs.

    Models other than `ONE` have `workers` of each phase. Without a `policy`, it is the gateway's own choice.
    """

    name: str
    model: str
    workers: int
    policy: str | None = None

    @property
    def pairs(self) -> bool:
        """Whether a request goes over two workers."""
        return self.model != ONE


ROUND_ROBIN: Final = Setup("round robin", ONE, 4, "round_robin")
PREFIX: Final = Setup("prefix", ONE, 4, "prefix")
THOUSAND: Final = Setup("1,000 workers", ONE, 1_000, "round_robin")
TRTLLM_PAIRS: Final = Setup("TensorRT-LLM", TRTLLM, 2)
VLLM_PAIRS: Final = Setup("vLLM", VLLM, 2)
SGLANG_PAIRS: Final = Setup("SGLang", SGLANG, 2)

ADDRESSES: Final = THOUSAND.workers


@frozen
class Case:
    """One load: `warmup` and then `requests` requests of `size` bytes over `connections`, asked anew once answered.

    `pause` is that of a stream, None for whole answers. Of every `leave` requests one is left after its first bytes,
    0: none. With `unique` no two requests begin alike. `kind`: beside a "reload" each second, the kernel is measured
    without; "plugins" is about kernels that lack one each; "memory" tells what gateways hold.
    """

    name: str
    title: str
    setup: Setup
    size: int
    connections: int
    requests: int
    warmup: int
    pause: int | None = None
    leave: int = 0
    unique: bool = False
    kind: Kind = "load"
    tokens: int = TOKENS

    @property
    def streams(self) -> bool:
        """Whether answers are streams."""
        return self.pause is not None

    @property
    def unit(self) -> Unit:
        """What is told."""
        if self.kind == "memory":
            return "MiB"
        return "us/token" if self.streams and not self.leave else "us/request"

    def quick(self) -> "Case":
        """The same with so few requests that the figures mean nothing."""
        count = min(self.connections, 8)
        return evolve(self, connections=count, requests=count * 3, warmup=min(self.warmup, count), tokens=QUICK_TOKENS)


SMALL: Final = 500
MIDDLE: Final = 32 * 1024
LARGE: Final = 100 * 1024

CASES: Final = (
    Case("one_leg", "one leg, round robin, 500 B, 64 at once", ROUND_ROBIN, SMALL, 64, 10_000, 2_000),
    Case("one_leg_1", "one leg, round robin, 500 B, 1 at once", ROUND_ROBIN, SMALL, 1, 4_000, 500),
    Case("one_leg_16", "one leg, round robin, 500 B, 16 at once", ROUND_ROBIN, SMALL, 16, 10_000, 2_000),
    Case("one_leg_256", "one leg, round robin, 500 B, 256 at once", ROUND_ROBIN, SMALL, 256, 12_000, 2_000),
    Case("one_leg_32k", "one leg, round robin, 32 KB, 64 at once", ROUND_ROBIN, MIDDLE, 64, 7_000, 1_000),
    Case("one_leg_100k", "one leg, round robin, 100 KB, 64 at once", ROUND_ROBIN, LARGE, 64, 3_000, 500),
    Case("paced", "streams, 10 ms between tokens, 256 at once", ROUND_ROBIN, SMALL, 256, 512, 256, pause=PACED),
    Case("unpaced", "streams, nothing between tokens, 64 at once", ROUND_ROBIN, SMALL, 64, 700, 100, pause=UNPACED),
    Case("hang_ups", "hang-up storm, a third of 256 leave", ROUND_ROBIN, SMALL, 256, 512, 256, pause=PACED, leave=3),
    Case("reload", "one leg, 500 B, a reload each second", ROUND_ROBIN, SMALL, 64, 40_000, 2_000, kind="reload"),
    Case("prefix", "one leg, prefix-aware, 500 B, 64 at once", PREFIX, SMALL, 64, 10_000, 2_000, unique=True),
    Case("prefix_32k", "one leg, prefix-aware, 32 KB, 64 at once", PREFIX, MIDDLE, 64, 6_000, 1_000, unique=True),
    Case("thousand", "one leg, 1,000 workers, 500 B, 64 at once", THOUSAND, SMALL, 64, 9_000, 3_000),
    Case("trtllm", "two legs, TensorRT-LLM, 500 B, 64 at once", TRTLLM_PAIRS, SMALL, 64, 7_000, 1_500),
    Case("trtllm_32k", "two legs, TensorRT-LLM, 32 KB, 64 at once", TRTLLM_PAIRS, MIDDLE, 64, 5_000, 1_000),
    Case("vllm", "two legs, vLLM, 500 B, 64 at once", VLLM_PAIRS, SMALL, 64, 7_000, 1_500),
    Case("vllm_32k", "two legs, vLLM, 32 KB, 64 at once", VLLM_PAIRS, MIDDLE, 64, 5_000, 1_000),
    Case("sglang", "two legs, SGLang, 500 B, 64 at once", SGLANG_PAIRS, SMALL, 64, 7_000, 1_500),
    Case("sglang_32k", "two legs, SGLang, 32 KB, 64 at once", SGLANG_PAIRS, MIDDLE, 64, 5_000, 1_000),
    Case("plugins", "one leg, 500 B, without one plugin", ROUND_ROBIN, SMALL, 64, 10_000, 2_000, kind="plugins"),
    Case("memory", "resident memory", ROUND_ROBIN, SMALL, 1_000, 1_000, 0, pause=HELD, kind="memory"),
)
