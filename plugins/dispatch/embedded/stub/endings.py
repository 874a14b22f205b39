"""The ways in which a request ends before its answer is complete."""

from collections.abc import Mapping


class ConnectionCut(Exception):
    """The stub has broken the connection on purpose."""


class Rejection(Exception):
    """An engine declines a request: a status and a body in the engine's own shape."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


class Death(Exception):
    """A request that takes the whole worker down, and the last thing that the worker says."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.status)
        self.rejection = rejection


class Stopped(Exception):
    """Somebody asked the worker to stop working on a request."""
