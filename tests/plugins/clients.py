"""What real clients were seen to send, in full size.

Recorded from the programs themselves; long texts were cut and are put back as filler of the same length.
"""

import re
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import frozen

RECORDED: Final = Path(__file__).parent / "recorded" / "clients.json"
_CUT: Final = re.compile(r"(?s)(.*)<cut, (\d+) characters>")


@frozen
class Sent:
    """One request of a client; `size` is what its body had in bytes."""

    client: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    size: int
    data: dict[str, Any] | None

    @property
    def body(self) -> bytes:
        """The body as it went out, but for the filler."""
        return b"" if self.data is None else orjson.dumps(self.data)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


def _restore(value: Any) -> Any:
    match value:
        case str() if cut := _CUT.fullmatch(value):
            return cut[1] + "word " * (int(cut[2]) // 5)
        case dict():
            return {name: _restore(inner) for name, inner in value.items()}
        case list():
            return [_restore(inner) for inner in value]
        case _:
            return value


REQUESTS: Final = tuple(
    Sent(
        told["client"],
        told["method"],
        told["target"],
        tuple((name, value) for name, value in told["headers"]),
        told["bytes"],
        _restore(told["body"]),
    )
    for told in orjson.loads(RECORDED.read_bytes())
)
