"""A module that cannot be imported."""

raise RuntimeError("the license server is down")
