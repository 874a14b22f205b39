"""The keys of the whole file."""

import re
from typing import Literal

from attrs import field, frozen, validators

from kernel import Switch


def _address(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):([0-9]{1,5})", text, re.ASCII)
    if not found or int(found[3]) > 65535:
        raise ValueError(f"expected host:port with a port up to 65535, got {text!r:.60}")
    return found[1] or found[2], int(found[3])


@frozen
class LogSettings:
    """How the log is written."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json", "auto"] = "auto"


@frozen
class Settings:
    """The whole file; what it says of a plugin is structured once the plugin's class is known."""

    listen: str = field(default="127.0.0.1:8000", validator=lambda _, __, text: _address(text))
    insecure: bool = False
    grace_seconds: float = field(default=30.0, validator=validators.ge(0))
    keep_alive_seconds: float = field(default=75.0, validator=validators.gt(0))
    client_write_seconds: float = field(default=60.0, validator=validators.gt(0))
    log: LogSettings = LogSettings()
    plugins: dict[str, Switch] = field(factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`."""
        return _address(self.listen)
