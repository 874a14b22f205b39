"""The counters of a worker in the text format that Prometheus reads."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field, frozen

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


@frozen
class Family:
    """One metric: its name, its kind, and the values of its label besides those that all have."""

    name: str
    kind: str = "counter"
    label: str = ""
    values: tuple[str, ...] = ("",)


@define(eq=False)
class Metrics:
    """Counts, and shows its families with the labels that all of them have; what was never counted is 0."""

    families: tuple[Family, ...]
    labels: Mapping[str, str]
    _counts: Counter[tuple[str, str]] = field(factory=Counter, init=False)

    def add(self, name: str, amount: float = 1, value: str = "") -> None:
        """Add to a counter; `value` is that of its own label."""
        self._counts[name, value] += amount  # type: ignore[assignment]

    def get(self, name: str, value: str = "") -> float:
        """Give a count."""
        return self._counts[name, value]

    def show(self, gauges: Mapping[str, float]) -> bytes:
        """Show everything; `gauges` are values that are known only now."""
        return "".join(line + "\n" for line in self._lines(gauges)).encode()

    def _lines(self, gauges: Mapping[str, float]) -> Iterator[str]:
        for family in self.families:
            yield f"# HELP {family.name} Counted by a stub."
            yield f"# TYPE {family.name} {family.kind}"
            for value in family.values:
                count = gauges.get(family.name, self._counts[family.name, value])
                yield f"{family.name}{{{','.join(self._pairs(family, value))}}} {float(count)}"

    def _pairs(self, family: Family, value: str) -> Iterable[str]:
        pairs = {**self.labels, **({family.label: value} if family.label else {})}
        return (f'{key}="{text}"' for key, text in sorted(pairs.items()))
