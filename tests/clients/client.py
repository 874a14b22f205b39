"""A library of a client, as a program that answers one question after another."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, frozen

from tests.clients.install import HERE, LIBRARIES, OLD_LIBRARIES, ROOT, node, node_modules

SECONDS: Final = 30.0
"""How long a library waits for an answer, of which some questions need two, unless the question says otherwise."""


@frozen
class Library:
    """A library by its name, and the program that drives it: `environment` is the name of where it is installed."""

    name: str
    program: str
    environment: str

    def words(self) -> tuple[str, ...]:
        """The command line, for which everything is installed first if it is not."""
        if self.environment.endswith(".mjs"):
            return (node(), str(HERE / "node" / self.program), str(node_modules() / self.environment))
        environment = {"libraries": LIBRARIES, "old": OLD_LIBRARIES}.get(self.environment)
        python = Path(sys.executable) if environment is None else environment.ready()
        return (str(python), "-m", f"tests.clients.programs.{self.program}")


@define(eq=False)
class Client:
    """A started program."""

    process: "subprocess.Popen[str]"
    errors: Path

    def ask(self, *, seconds: float = SECONDS, **question: object) -> dict[str, Any]:
        """Put a question and give what the client made of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question | {"seconds": seconds}) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 2 * seconds)
        line = self.process.stdout.readline() if ready else ""
        assert line, f"the client did not answer {question}:\n{self.errors.read_text()[-4000:]}"
        told: dict[str, Any] = json.loads(line)
        return told


def bare(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a client: nothing of the user's, and nothing is told to or asked of anybody else."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1", **more}


@contextmanager
def started(library: Library, folder: Path) -> Iterator[Client]:
    """A library's program, ended with the block."""
    errors = folder / "stderr"
    told = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            library.words(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
            cwd=folder, env=bare(folder, **told),
        )  # fmt: skip
    try:
        yield Client(process, errors)
    finally:
        process.kill()
        process.communicate()
