"""What a chain returns: data, bytes, or a stream with per-chunk links."""

from collections.abc import AsyncIterable, Callable
from typing import Final, TypeAlias

from attrs import define, field, frozen

Headers: TypeAlias = list[tuple[bytes, bytes]]

COMPLETED: Final = "completed"
FAILED: Final = "failed"
CLIENT_GONE: Final = "client_gone"
NEVER_BEGUN: Final = "never_begun"


@frozen(eq=False)
class Outcome:
    """How a stream ended: `name` is one of the constants, `error` the cause, `plugin` where it came from."""

    name: str
    error: BaseException | None = None
    plugin: str | None = None


@define(eq=False)
class DataReply:
    """An answer that is not bytes yet: `encode_reply`, or a plugin outside it, turns `data` into a body."""

    data: object
    status: int = 200
    headers: Headers = field(factory=list)


@define(eq=False)
class BytesReply:
    """A whole answer; `content-length` is added when it is written."""

    body: bytes
    status: int = 200
    headers: Headers = field(factory=list)


@define(eq=False)
class Link:
    """What one plugin attached to a stream; see `StreamReply.attach`."""

    step: Callable[[bytes], bytes] | None
    check: Callable[[], Exception | None] | None
    close: Callable[[Outcome], bytes] | None
    end: Callable[[Outcome], None] | None
    owner: str | None = None
    fail_open: bool = False


@define(eq=False)
class StreamReply:
    """An answer that is written while it is made: `source` gives chunks of bytes, cut anywhere.

    Plugins attach links, the innermost first; one loop in the kernel pumps.
    """

    source: AsyncIterable[bytes]
    status: int = 200
    headers: Headers = field(factory=list)
    links: list[Link] = field(factory=list, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    owner: str | None = field(default=None, init=False)

    def attach(
        self, *, step: Callable[[bytes], bytes] | None = None, check: Callable[[], Exception | None] | None = None,
        close: Callable[[Outcome], bytes] | None = None, end: Callable[[Outcome], None] | None = None,
    ) -> None:  # fmt: skip
        """Add one plugin's part.

        `step` takes each chunk and returns it, changed or not; empty bytes hold it back. `check` is asked when the
        source ends by itself, and may return the error that makes this end a failure. `close` gives the last bytes
        once the source has ended or failed; steps further out see them, and a failed stream that no link closes is
        cut. `end` hears the outcome exactly once, also of a stream that was cut or never begun.
        """
        self.links.append(Link(step, check, close, end))

    def claim(self, owner: str, *, fail_open: bool) -> None:
        """Mark the stream, where it is new, and its links without an owner as `owner`'s."""
        self.owner = self.owner or owner
        for link in reversed(self.links):
            if link.owner is not None:
                break
            link.owner, link.fail_open = owner, fail_open

    def finish(self, outcome: Outcome) -> list[tuple[str | None, Exception]]:
        """Tell every link the outcome, and let go of it; returns what links raised, with their owners."""
        faults: list[tuple[str | None, Exception]] = []
        if self.outcome is None:
            self.outcome, links, self.links = outcome, self.links, []
            for link in links:
                try:
                    if link.end is not None:
                        link.end(outcome)
                except Exception as error:
                    faults.append((link.owner, error))
        return faults


Reply: TypeAlias = DataReply | BytesReply | StreamReply
REPLIES: Final[frozenset[type]] = frozenset((DataReply, BytesReply, StreamReply))
