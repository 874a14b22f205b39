"""The command line: `python -m bench` against floors, `python -m bench chain` inside one process."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import uvloop

import bench
from bench.budgets import NAMES, measure_stages, stages_table
from bench.calls import count_calls
from bench.cases import CASES
from bench.ceilings import calls_table
from bench.chain import measure_chain
from bench.chart import draw
from bench.cores import SEVERAL, cores_table, measure_cores
from bench.gateways import GATEWAYS
from bench.measure import measure
from bench.page import CHART, RESULTS, write
from bench.processes import BenchError, Cores
from bench.report import chain_table, markdown, text
from bench.results import collect
from bench.summary import summarize
from bench.turns import Result

QUICK = click.option("--quick", is_flag=True, help="Tiny counts: does it run? The figures mean nothing.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True, help=bench.__doc__.partition("\n")[0], context_settings={"max_content_width": 100}
)
@click.option("--case", "names", multiple=True, type=click.Choice([case.name for case in CASES]), help="Only this one.")
@click.option("--gateway", "only", multiple=True, type=click.Choice([*GATEWAYS]), help="Only this one.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Turns of each gateway in a case.")
@click.option("--output", type=click.Path(path_type=Path), help="A folder for bench.md and bench.json.")
@QUICK
@JSON
@click.pass_context
def main(
    context: click.Context,
    *,
    names: Sequence[str],
    only: Sequence[str],
    rounds: int,
    output: Path | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure the kernel beside its floors."""
    if context.invoked_subcommand is not None:
        return
    cases = [case.quick() if quick else case for case in CASES if not names or case.name in names]
    starts = {name: start for name, start in GATEWAYS.items() if not only or name in only}
    rounds = 1 if quick else rounds
    cores = _move()
    results: list[Result] = []
    ended = None
    try:
        results.extend(measure(cases, rounds, _tell, cores, starts))
    except BenchError as error:
        ended = f"bench: error: {error}"
    except KeyboardInterrupt:
        ended = "bench: stopped"
    if ended and not results:
        sys.exit(ended)
    document = summarize(results, cores, rounds, quick=quick)
    if output is not None:
        _write(output / "bench.json", document)
        output.joinpath("bench.md").write_text(markdown(document))
    print(json.dumps(document, indent=1) if as_json else text(document))
    if ended:
        sys.exit(f"{ended}; what was measured before is told")


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


@main.command(help="Measure what each stage of a request costs, in microseconds, under a profiler.")
@click.option("--case", "names", multiple=True, type=click.Choice(NAMES), help="Only this one.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Profiles of each case.")
@click.option("--output", type=click.Path(path_type=Path), help="A folder for stages.json.")
@QUICK
@JSON
def stages(names: Sequence[str], rounds: int, output: Path | None, *, quick: bool, as_json: bool) -> None:
    """Measure stages."""
    cases = [case.quick() if quick else case for case in CASES if case.name in (names or NAMES)]
    cores = _move()
    with _refusing():
        measured = measure_stages(cases, 1 if quick else rounds, _tell, cores)
    if output is not None:
        _write(output / "stages.json", measured)
    print(json.dumps(measured, indent=1) if as_json else stages_table(measured))


@main.command(help="Count the calls of functions for a request and for a token, by stage; needs no clock.")
@JSON
def calls(*, as_json: bool) -> None:
    """Count calls."""
    counted = count_calls()
    print(json.dumps(counted, indent=2) if as_json else calls_table(counted))


@main.command(help="Measure one process and two on all cores, in front of the same workers.")
@click.option("--case", "names", multiple=True, type=click.Choice(SEVERAL), help="Only this one.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Turns of each in a case.")
@click.option("--output", type=click.Path(path_type=Path), help="A folder for cores.json.")
@QUICK
@JSON
def cores(*, names: Sequence[str], rounds: int, output: Path | None, quick: bool, as_json: bool) -> None:
    """Measure several processes."""
    with _refusing():
        document = measure_cores(1 if quick else rounds, _tell, names or SEVERAL, quick=quick)
    if output is not None:
        _write(output / "cores.json", document)
    print(json.dumps(document, indent=1) if as_json else cores_table(document))


@main.command(help="Draw the processor time of each gateway, from the JSON of a run, as a picture.")
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.argument("picture", type=click.Path(path_type=Path))
def chart(run: Path, picture: Path) -> None:
    """Draw a chart."""
    with _refusing():
        draw(json.loads(run.read_text()), picture)


@main.command(help="Write the figures and the chart of docs/performance.md anew, of docs/performance.json.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, exists=True),
    help="A folder with bench.json, peers.json, stages.json and cores.json, which are to be shown from now on.",
)
@click.option("--note", default="", help="What is to be known of those results, in a sentence.")
def page(results: Path | None, note: str) -> None:
    """Write the page."""
    shown = json.loads(RESULTS.read_text()) if results is None else collect(results, count_calls(), note)
    with _refusing():
        draw(shown["gateways"], CHART)
    write(shown)


@contextmanager
def _refusing() -> Iterator[None]:
    """End with what was wrong, if anything is."""
    try:
        yield
    except BenchError as error:
        sys.exit(f"bench: error: {error}")


def _move() -> Cores:
    """Leave the gateway's core."""
    cores = Cores.of_this_machine()
    os.sched_setaffinity(0, cores.others)
    if cores.shared:
        click.echo("one core for all processes: latencies and requests per second mean little", err=True)
    return cores


def _write(file: Path, document: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench")
