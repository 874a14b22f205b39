"""What a run of the peers says: each figure beside what was to be reached, and why what is missing is."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from attrs import frozen

from bench import report
from bench.gateways import KERNEL
from bench.peers.cases import GOALS, NEVER, TAIL_GOALS, Goal
from bench.peers.measure import names
from bench.peers.routers import PEERS

_PEERS: Final = tuple(peer.name for peer in PEERS)


@frozen
class Row:
    """One line of the table: a figure of each gateway in one case, lowest, median and highest round.

    `ratios`: what the kernel needs for what another one needs. `goal`: None where nothing was set.
    """

    name: str
    title: str
    unit: str
    figures: Mapping[str, tuple[float, float, float]]
    ratios: Mapping[str, float]
    goal: Goal | None


def judge(document: Mapping[str, Any], failures: Mapping[tuple[str, str], str], load_before: float) -> dict[str, Any]:
    """The document with `goals`, `never` and `failures`; its environment with the peers and the load before the run.

    A goal has the `case`, what is `measured`, what is to be `reached`, and whether it is `met`, with a `reason`; null,
    where something of it was not measured.
    """
    rows = list(_rows(document))
    goals = [
        {"case": row.name, "measured": row.unit, "reached": str(row.goal), "met": met, "reason": reason}
        for row in rows
        if row.goal is not None
        for met, reason in (_verdict(row, rows),)
    ]
    models = {name: case["model"] for name, case in document["cases"].items()}
    never = sorted({(model, peer) for model in models.values() for peer in _PEERS if (model, peer) in NEVER})
    versions = {peer.name: peer.environment.version for peer in PEERS}
    return {
        **document,
        "environment": {**document["environment"], **versions, "load_before": round(load_before, 1)},
        "goals": goals,
        "never": [{"model": model, "gateway": peer, "reason": NEVER[model, peer]} for model, peer in never],
        "failures": [{"case": case, "gateway": name, "reason": reason} for (case, name), reason in failures.items()],
    }


def text(document: Mapping[str, Any]) -> str:
    """For a terminal."""
    rows = list(_rows(document))
    wide = max(len(row.title) + len(row.unit) + 2 for row in rows)
    lines = [report.text(document), "", "to reach"]
    for row in rows:
        if row.goal is not None:
            own = f"{row.figures[KERNEL][1]:.1f}" if KERNEL in row.figures else "-"
            title = f"{row.title}, {row.unit}"
            lines.append(f"  {title:<{wide}}  {own:>8}  {row.goal}: {_verdict(row, rows)[1]}")
    return "\n".join([*lines, "", *_notes(document)]).rstrip()


def markdown(document: Mapping[str, Any]) -> str:
    """One table: each gateway's median, its lowest and highest round, and the kernel's part of it."""
    rows, shown = list(_rows(document)), [name for name in names() if _takes_part(document, name)]
    lines = [f"{report.environment(document)}; {document['rounds']} rounds.", ""]
    lines += ["Quick: these figures mean nothing.", ""] if document["quick"] else []
    lines.append(_line(("", "unit", *shown, "to reach", "in this run")))
    lines.append(_line(("---", *["---:"] * (len(shown) + 1), "---", "---")))
    for row in rows:
        cells = (_cell(row, name) for name in shown)
        goal = ("", "") if row.goal is None else (str(row.goal), _verdict(row, rows)[1])
        lines.append(_line((row.title, row.unit, *cells, *goal)))
    return "\n".join([*lines, "", *(f"- {note}" for note in _notes(document))]).rstrip() + "\n"


def _takes_part(document: Mapping[str, Any], name: str) -> bool:
    return any(name in case["gateways"] for case in document["cases"].values())


def _rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, case in document["cases"].items():
        gateways = case["gateways"]
        figures = {own: (each["lowest"], each["median"], each["highest"]) for own, each in gateways.items()}
        ratios = {own: each["ratio"] for own, each in gateways.items() if "ratio" in each and own != KERNEL}
        yield Row(name, case["title"], case["unit"], figures, ratios, GOALS.get(name))
        if name in TAIL_GOALS:
            yield _tail(name, case, TAIL_GOALS[name])


def _tail(name: str, case: Mapping[str, Any], goal: Goal) -> Row:
    """The row of the 99th percentiles."""
    tails = {
        own: [sample["whole"]["p99"] * 1e3 for sample in each["samples"]] for own, each in case["gateways"].items()
    }
    figures = {own: (min(each), median(each), max(each)) for own, each in tails.items()}
    ratios = {
        own: median(kernel / other for kernel, other in zip(tails[KERNEL], each, strict=True))
        for own, each in tails.items()
        if KERNEL in tails and own != KERNEL
    }
    return Row(name, case["title"], "p99 ms", figures, ratios, goal)


def _verdict(row: Row, rows: Sequence[Row]) -> tuple[bool | None, str]:
    """Whether a goal was met, and in words."""
    goal = row.goal
    assert goal is not None
    if KERNEL not in row.figures:
        return None, "not measured"
    own = row.figures[KERNEL][1]
    over = f"missed by {own - goal.most:.1f}" if goal.most is not None and own > goal.most else None
    if not (goal.less or goal.no_more):
        return over is None, over or "met"
    compared = [other for other in rows if other.name in (goal.rivals or (row.name,)) and other.unit == row.unit]
    peers = [(other.figures[name][1], name) for other in compared for name in _PEERS if name in other.figures]
    if not peers:
        return (None, "no peer was measured") if over is None else (False, over)
    best, name = min(peers)
    if own < best or (goal.no_more and own == best):
        return over is None, f"{over}, but below all peers: {name} has {best:.1f}" if over else "met"
    return False, f"{over or f'missed by {own - best:.1f}'}: {name} has {best:.1f}"


def _cell(row: Row, name: str) -> str:
    if name not in row.figures:
        return "-"
    lowest, middle, highest = row.figures[name]
    said = f"{middle:.1f} ({lowest:.1f}-{highest:.1f})"
    return f"{said}, {row.ratios[name]:.2f}" if name in row.ratios else said


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    for entry in document["never"]:
        yield f"{entry['gateway']} has no figures for {entry['model']}: {entry['reason']}"
    for entry in document["failures"]:
        yield f"{entry['gateway']} failed in {entry['case']}: {entry['reason']}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
