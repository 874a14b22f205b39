"""The tables of a run, for people: as text, and in Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from bench.gateways import KERNEL

HEADINGS: Final = ("median", "range", "kernel/it", "kernel-it", "per s", "busy", "p50 ms", "p99 ms")


def cells(case: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[str]:
    """What `HEADINGS` say of one gateway in one case."""
    yield f"{figures['median']:.1f}"
    yield spread(figures)
    yield f"{figures['ratio']:.2f}" if "ratio" in figures else ""
    yield f"{figures['less']:.1f}" if "less" in figures else ""
    loaded = "busy" in figures
    yield f"{figures['requests_per_second']:.0f}" if loaded else ""
    yield f"{figures['busy']:.0%}" if loaded else ""
    for point in ("p50", "p99"):
        yield f"{figures[case['latency'] + f'_{point}_milliseconds']:.2f}" if loaded else ""


def spread(figures: Mapping[str, Any]) -> str:
    """The lowest and the highest round."""
    return f"{figures['lowest']:.1f}-{figures['highest']:.1f}"


def environment(document: Mapping[str, Any]) -> str:
    """What the figures depend on, in one line."""
    return ", ".join(f"{name} {value}" for name, value in document["environment"].items())


def text(document: Mapping[str, Any]) -> str:
    """The table for a terminal: a line of each gateway below the title of its case."""
    table = {
        f"{case['title']}, {case['unit']}": [(name, *cells(case, own)) for name, own in case["gateways"].items()]
        for case in document["cases"].values()
    }
    rows = [("", *HEADINGS), *(row for group in table.values() for row in group)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [environment(document)]
    if document["quick"]:
        lines.append("quick: these figures mean nothing")
    lines += ["", _line(rows[0], widths)]
    for title, group in table.items():
        lines += [title, *(_line(row, widths) for row in group)]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *rest = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    return f"  {name.strip():<{widths[0]}}  {'  '.join(rest)}".rstrip()


def markdown(document: Mapping[str, Any]) -> str:
    """A table of all cases with the same gateways beside each other, and then one of each case with everything."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for case in document["cases"].values():
        groups.setdefault(tuple(case["gateways"]), []).append(case)
    parts = [f"{environment(document)}; {document['rounds']} rounds, medians, and lowest to highest round."]
    if document["quick"]:
        parts.append("Quick: these figures mean nothing.")
    for names, cases in groups.items():
        if len(cases) > 1 or len(groups) == 1:
            parts.append(_wide(names, cases))
    for case in document["cases"].values():
        rows = [(name, *cells(case, own)) for name, own in case["gateways"].items()]
        parts.append(f"**{case['title']}**, {case['unit']}\n\n" + markdown_table(("", *HEADINGS), rows))
    return "\n\n".join(parts) + "\n"


def _wide(names: Sequence[str], cases: Sequence[Mapping[str, Any]]) -> str:
    others = [name for name in names if name != KERNEL] if KERNEL in names else []
    rows = []
    for case in cases:
        figures = case["gateways"]
        medians = (f"{figures[name]['median']:.1f} ({spread(figures[name])})" for name in names)
        ratios = (f"{figures[name]['ratio']:.2f}" for name in others)
        rows.append((case["title"], case["unit"], *medians, *ratios))
    return markdown_table(("case", "unit", *names, *(f"kernel / {name}" for name in others)), rows)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, of whose columns all but the first hold figures."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def chain_table(title: str, costs: Mapping[str, float]) -> str:
    """The table of the steps of one section."""
    width = max(map(len, costs))
    return "\n".join((title, *(f"  {name:<{width}}  {cost:8.2f} us" for name, cost in costs.items())))
