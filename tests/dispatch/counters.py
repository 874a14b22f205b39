"""How the metrics of legs change during a test."""

from plugins.metrics import LegMetrics


class Counters:
    """The metrics of one phase's legs, compared with what they were at first."""

    def __init__(self, metrics: LegMetrics) -> None:
        self._metrics = metrics
        self._before = self._read()

    def changes(self) -> dict[str, float]:
        """What was added to each metric that changed; of histograms, the number of observations."""
        return {name: value - self._before[name] for name, value in self._read().items() if value != self._before[name]}

    def _read(self) -> dict[str, float]:
        values = {}
        for name in ("total", "error", "retry", "completed"):
            values[name] = getattr(self._metrics, name)._value.get()
        for name in ("first_token", "per_token", "complete"):
            values[name] = sum(bucket.get() for bucket in getattr(self._metrics, name)._buckets)
        return values
