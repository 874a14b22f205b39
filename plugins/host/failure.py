"""How the command line says what went wrong: one line for each problem, no traceback, and an exit code."""

import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import click

from kernel import ConfigError

FAULT: Final = 1
CONFIGURATION: Final = 2

TRACEBACK: Final = "KERNEL_TRACEBACK"
"""An environment variable that, when set, has a fault show where it came from."""


class Failure(Exception):
    """Ends a command with `problems` on standard error and an exit code."""

    def __init__(self, problems: str | Iterable[str], code: int = FAULT) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        self.code = code
        super().__init__("\n".join(self.problems))


def tell(problems: Iterable[str]) -> None:
    """Write each problem on its own line."""
    for problem in problems:
        for line in problem.splitlines() or [""]:
            click.echo(f"kernel: error: {line}", err=True)


class KernelGroup(click.Group):
    """The `kernel` command: turns whatever its commands raise into lines and an exit code."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,
    ) -> NoReturn:
        """Run a command and exit: 0, 1 for a fault, 2 for configuration or usage."""
        extra["standalone_mode"] = False
        sys.exit(self._run(args, prog_name, extra))

    def _run(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        try:
            code = super().main(args, prog_name, **extra)
        except Exception as error:
            failure = as_failure(error)
            tell(failure.problems)
            return failure.code
        except KeyboardInterrupt:
            tell(["interrupted"])
            return FAULT
        return code if isinstance(code, int) else 0


def as_failure(error: Exception) -> Failure:
    """What to tell of an error, and the exit code that it stands for."""
    match error:
        case Failure():
            return error
        case ConfigError():
            return Failure(error.problems, CONFIGURATION)
        case click.UsageError():
            hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
            return Failure(f"{error.format_message().rstrip('.')}{hint}", CONFIGURATION)
        case click.ClickException():
            return Failure(error.format_message())
        case click.Abort():
            return Failure("interrupted")
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    return Failure([f"{type(error).__name__}: {error}", f"set {TRACEBACK}=1 to see where it came from"])
