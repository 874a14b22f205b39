"""Runs a soak and prints what was seen: `python -m tests.soak --requests N`."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.soak.soak import Plan, growth, soak


def main() -> int:
    """Run; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=float, default=0.12, metavar="SHARE")
    given = parser.parse_args()
    plan = Plan(given.requests, clients=given.clients, seed=given.seed, fault_share=given.faults)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        record = runner.run(soak(plan, Path(folder)))
    for done, resident in record.memory[:: max(len(record.memory) // 20, 1)]:
        sys.stdout.write(f"{done:>8} requests  {resident / 1e6:8.2f} MB\n")
    sys.stdout.write(f"{record.seconds:.1f} s, {record.done / record.seconds:.0f} requests/s\n")
    sys.stdout.write(f"answered {dict(record.answered)}, left {dict(record.left)}\n")
    sys.stdout.write(f"growth: {growth(record):.2f} bytes for each request\n")
    for problem in record.problems:
        sys.stdout.write(f"problem: {problem}\n")
    return 1 if record.problems else 0


if __name__ == "__main__":
    sys.exit(main())
