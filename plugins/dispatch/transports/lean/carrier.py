"""What carries an answer, as the answer sees it."""

import asyncio
from typing import Protocol


class Carrier(Protocol):
    """What an answer asks of its connection."""

    def expect(self) -> "asyncio.Future[None]":
        """What is done when more has come in, or nothing will."""
        ...

    def hold(self) -> None:
        """Do not read on for now."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def cut_request(self) -> None:
        """Leave out what was not sent yet."""
        ...

    def finish(self, *, keep: bool) -> None:
        """The answer has come in whole; with `keep` the connection can carry another one."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...
