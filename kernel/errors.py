"""The errors of the kernel, all in one tree."""

from collections.abc import Iterable


class KernelError(Exception):
    """Base of every error that the kernel raises on purpose."""


class Rejection(KernelError):
    """A request declined on purpose, answered with `status` (400-599) and a `message` meant for the client.

    Of the API's envelope, `code` is the machine-readable reason, `kind` the error type and `param` the field at
    fault. `headers` go out with the answer.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: Iterable[tuple[str, str]] = (),
        *, kind: str | None = None, param: str | None = None,
    ) -> None:  # fmt: skip
        if not 400 <= status <= 599:
            raise ValueError(f"a rejection needs a status from 400 to 599, got {status}")
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, tuple(headers)
        self.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        if any(len((name + value).splitlines()) > 1 for name, value in self.headers):
            raise ValueError("a header of a rejection is one line")
        self.kind, self.param = kind, param


class ClientGone(KernelError):
    """The client hung up before its answer was complete."""


class ChainError(KernelError):
    """A plugin broke the contract of the chain; `plugin` is its name."""

    def __init__(self, plugin: str, message: str) -> None:
        super().__init__(f"plugin {plugin!r} {message}")
        self.plugin = plugin


class ConfigError(KernelError):
    """Configuration that cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class OrderError(ConfigError):
    """The plugins that were asked for have no single order."""


class DiscoveryError(ConfigError):
    """An entry point is missing, named twice, or does not load."""
