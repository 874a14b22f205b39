"""A plugin that cannot be imported, and leaves a mark where it was tried."""

from pathlib import Path

Path(__file__).with_suffix(".imported").touch()

raise RuntimeError("no license found")
