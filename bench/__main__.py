"""The command line: `python -m bench` against floors, `python -m bench chain` inside one process."""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Sequence

import click
import uvloop

import bench
from bench.cases import CASES
from bench.chain import measure_chain
from bench.load import BenchError
from bench.measure import measure
from bench.processes import Cores
from bench.report import chain_table, environment, summarize, table

QUICK = click.option("--quick", is_flag=True, help="Tiny counts: does it run? The figures mean nothing.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True, help=bench.__doc__.partition("\n")[0], context_settings={"max_content_width": 100}
)
@click.option("--case", "names", multiple=True, type=click.Choice([case.name for case in CASES]), help="Only this one.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Turns of each gateway in a case.")
@QUICK
@JSON
@click.pass_context
def main(context: click.Context, names: Sequence[str], rounds: int, quick: bool, as_json: bool) -> None:  # noqa: FBT001
    """Measure the kernel beside its floors."""
    if context.invoked_subcommand is not None:
        return
    cases = [case.quick() if quick else case for case in CASES if not names or case.name in names]
    cores = Cores.of_this_machine()
    os.sched_setaffinity(0, cores.others)
    if cores.shared:
        click.echo("one core for all processes: latencies and requests per second mean little", err=True)
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            samples = runner.run(measure(cases, 1 if quick else rounds, _tell, cores=cores, quick=quick))
    except BenchError as error:
        sys.exit(f"bench: error: {error}")
    figures = {case.name: summarize(samples[case.name]) for case in cases}
    if as_json:
        units = {case.name: case.unit for case in cases}
        print(json.dumps({"environment": environment(cores), "units": units, "cases": figures}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in environment(cores).items()))
    if quick:
        print("quick: these figures mean nothing")
    for case in cases:
        print("\n" + table(case, figures[case.name]))


@main.command(help="Measure steps of the request path inside one process, in microseconds.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="Repetitions of each step.")
@QUICK
@JSON
def chain(rounds: int, quick: bool, as_json: bool) -> None:  # noqa: FBT001
    """Measure the chain alone."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sections = runner.run(measure_chain(1 if quick else rounds, 20 if quick else 5_000))
    if as_json:
        print(json.dumps(sections, indent=2))
        return
    print("\n\n".join(chain_table(title, costs) for title, costs in sections.items()))


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(line, err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench")
