"""The command line: `python -m bench.peers`, which `make bench-peers` calls with `--install`."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

import bench.peers
from bench.peers.cases import CASES
from bench.peers.measure import Outcome, measure_peers, names
from bench.peers.report import judge, markdown, text
from bench.peers.routers import PEERS
from bench.processes import BenchError, Cores
from bench.summary import summarize


@click.command(help=bench.peers.__doc__.partition("\n")[0], context_settings={"max_content_width": 100})
@click.option("--case", "cases", multiple=True, type=click.Choice([case.name for case in CASES]), help="Only this one.")
@click.option("--gateway", "only", multiple=True, type=click.Choice(names()), help="Only this one.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns of each gateway in a case.")
@click.option("--output", type=click.Path(path_type=Path), help="A folder for peers.md and peers.json.")
@click.option("--install", is_flag=True, help="Install the peers that are missing, first.")
@click.option("--quick", is_flag=True, help="Tiny counts: does it run? The figures mean nothing.")
def main(
    *,
    cases: Sequence[str],
    only: Sequence[str],
    rounds: int,
    output: Path | None,
    install: bool,
    quick: bool,
) -> None:
    """Measure, print the table, and end with 0 if all of it was measured, whatever the figures are."""
    chosen = [case.quick() if quick else case for case in CASES if not cases or case.name in cases]
    rounds = 1 if quick else rounds
    cores, outcome, load_before = Cores.of_this_machine(), Outcome(), os.getloadavg()[0]
    try:
        _prepare([peer.name for peer in PEERS if not only or peer.name in only], install=install)
        os.sched_setaffinity(0, cores.others)
        if cores.shared:
            click.echo("one core for all processes: latencies mean little", err=True)
        measure_peers(chosen, rounds, _tell, cores, only, outcome)
    except BenchError as error:
        sys.exit(f"bench: error: {error}")
    except KeyboardInterrupt:
        outcome.failures["everything after it", "all of them"] = "stopped"
    document = judge(summarize(outcome.results, cores, rounds, quick=quick), outcome.failures, load_before)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        output.joinpath("peers.json").write_text(json.dumps(document, indent=1) + "\n")
        output.joinpath("peers.md").write_text(markdown(document))
    print(text(document))
    if outcome.failures:
        sys.exit("bench: error: not all of it was measured")


def _prepare(needed: Sequence[str], *, install: bool) -> None:
    """Have the peers that are needed.

    Raises:
        BenchError: one is not installed, or cannot be.
    """
    for peer in PEERS:
        if peer.name in needed:
            if install:
                _tell(f"installing {peer.name} {peer.environment.version}, unless it is")
                peer.environment.install()
            peer.environment.program("python")


def _tell(line: str) -> None:
    """Say what is done now: all of it takes a while."""
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.peers")
