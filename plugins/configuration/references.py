"""What a configuration points to: files and the environment."""

import os
from pathlib import Path
from typing import Final

from kernel import Secret

MAXIMUM_BYTES: Final = 1024 * 1024


def read_text(path: Path) -> str:
    """The text of a UTF-8 file of at most 1 MiB; raises `ValueError` with the reason why it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(data) > MAXIMUM_BYTES:
        raise ValueError("larger than 1 MiB")
    return data.decode()


def read_secret(given: object) -> Secret:
    """The secret that plain data points to; raises `ValueError`, which never quotes it."""
    match given:
        case {"env": str(name), **rest} if not rest:
            text = os.environ.get(name, "")
        case {"file": str(name), **rest} if not rest:
            text = read_text(Path(name))
        case _:
            raise ValueError("a secret is written {env: NAME} or {file: PATH}, never as itself")
    if not text.rstrip("\r\n"):
        raise ValueError(f"{name!r:.60} is unset or empty")
    return Secret(text.rstrip("\r\n"))
