"""The cells of metrics tell what is added to them; this is imported before there is any metric."""

from collections.abc import Callable
from typing import Any, ClassVar

from prometheus_client.values import MutexValue


class WatchedCell(list[float]):
    """A cell that tells one watcher what was added to it."""

    watcher: ClassVar[Callable[["WatchedCell", float], None] | None] = None

    def __setitem__(self, index: Any, number: Any) -> None:
        """Take a number, and tell of it."""
        change = number - self[index]
        super().__setitem__(index, number)
        if change and WatchedCell.watcher is not None:
            WatchedCell.watcher(self, change)


_make: Callable[..., None] = MutexValue.__init__


def _make_watched(self: Any, *arguments: Any, **named: Any) -> None:
    if hasattr(self, "cell"):
        self.cell = WatchedCell(self.cell)
    _make(self, *arguments, **named)


MutexValue.__init__ = _make_watched  # type: ignore[method-assign]
