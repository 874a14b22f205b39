"""Draws the processor time of each gateway as bars."""

from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from bench.gateways import FLOOR_A, FLOOR_B, FLOOR_D, KERNEL
from bench.page import number
from bench.processes import BenchError

FLOORS: Final = (FLOOR_A, FLOOR_B, FLOOR_D)
OWN, PEER, FLOOR = "#1b5e9e", "#8a97a5", "#d3d9e0"
INK: Final = "#22303c"

_NOT_DRAWN: Final = ("plugins",)  # chains without one plugin
_COLUMNS: Final = 2
_UNITS: Final = {"us/request": "µs per request", "us/token": "µs per token"}


@frozen
class Panel:
    """The bars of one case, the least first: a name, a value and a colour each."""

    title: str
    unit: str
    bars: tuple[tuple[str, float, str], ...]


def panels(run: Mapping[str, Any]) -> Iterator[Panel]:
    """A panel for each case of a run that tells processor time, but for those that repeat another with 256 at once."""
    for key, case in run["cases"].items():
        if case["unit"] in _UNITS and key not in _NOT_DRAWN and not key.endswith("_256"):
            values = {name: figures["median"] for name, figures in case["gateways"].items()}
            bars = tuple((name, values[name], _colour(name)) for name in sorted(values, key=values.__getitem__))
            yield Panel(case["title"], _UNITS[case["unit"]], bars)


def _colour(name: str) -> str:
    return OWN if name == KERNEL else FLOOR if name in FLOORS else PEER


def draw(run: Mapping[str, Any], file: Path) -> None:
    """Write the picture of a run.

    Raises:
        BenchError: what draws is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise BenchError("pictures are drawn with matplotlib: pip install -e '.[bench]'") from None
    shown = list(panels(run))
    most = max(len(panel.bars) for panel in shown)
    rows = ceil(len(shown) / _COLUMNS)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(11, rows * (0.75 + 0.28 * most) + 0.9), dpi=110, layout=layout)
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
    for place, panel in zip(places, shown, strict=False):
        _draw_panel(place, panel, most)
    for place in places[len(shown) :]:
        place.set_axis_off()
    figure.suptitle("Processor time of the gateway, on one core; shorter is better", color=INK, fontsize=13)
    figure.savefig(file, metadata={"Software": None})


def _draw_panel(place: Any, panel: Panel, most: int) -> None:
    names, values, colours = zip(*panel.bars, strict=True)
    bars = place.barh(names, values, color=colours, height=0.72)
    place.bar_label(bars, labels=[number(value) for value in values], padding=4, color=INK, fontsize=9)
    place.set_title(f"{panel.title}\n{panel.unit}", loc="left", fontsize=10, color=INK)
    place.set_ylim(most - 0.5, -0.5)  # bars of all panels are of one height, the first one on top
    place.set_xlim(0, max(values) * 1.12)
    place.set_xticks([])
    place.tick_params(axis="y", length=0, labelsize=9, labelcolor=INK)
    for label in place.get_yticklabels():
        if label.get_text() == KERNEL:
            label.set_fontweight("bold")
    for side in ("top", "right", "bottom"):
        place.spines[side].set_visible(False)
    place.spines["left"].set_color(PEER)
    place.spines["left"].set_bounds(-0.5, len(values) - 0.5)
