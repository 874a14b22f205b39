"""What pip left of two distributions, a configuration beside it, and the command line on both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from attrs import frozen

ROOT = Path(__file__).parents[2]
DISPATCH = 'dispatch: {config: {pools: [{model: m, engine: openai, workers: ["http://127.0.0.1:9"]}]}}'


@frozen
class Site:
    """The folder that pip installed into, and a configuration beside it."""

    folder: Path
    file: Path

    def write(self, *lines: str) -> None:
        """Rewrite what the configuration says of plugins."""
        self.file.write_text("\n".join(["plugins:", f"  {DISPATCH}", *(f"  {line}" for line in lines), ""]))

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line with what is installed."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "plugins.host", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    def check(self) -> "subprocess.CompletedProcess[str]":
        """Check the configuration."""
        return self.run("check", str(self.file))

    def chain(self) -> list[dict[str, Any]]:
        """The plugins as the command line shows them."""
        shown = self.run("plugins", "--json", "--config", str(self.file))
        assert shown.returncode == 0, shown.stderr
        return json.loads(shown.stdout)["plugins"]  # type: ignore[no-any-return]

    def imported(self) -> set[str]:
        """Which distributions were imported: an import leaves compiled code, or the mark of the broken one."""
        compiled = {path.name.partition(".")[0] for path in self.folder.rglob("*.pyc")}
        return compiled | {path.stem for path in self.folder.glob("*.imported")}
