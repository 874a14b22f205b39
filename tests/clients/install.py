"""The clients that the tests drive: libraries in environments of their own, and programs from npm, each pinned."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

from bench.cache import cache, locked
from tests.live.environment import Environment, run

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]

LIBRARIES: Final = Environment(
    "client-libraries",
    packages=("litellm==1.110.2", "langchain-openai==1.7.4", "langchain-anthropic==1.7.10"),
    constraints="../clients/constraints.txt",
)
OLD_LIBRARIES: Final = Environment(
    "old-client-libraries",
    packages=("openai==1.109.1", "anthropic==0.125.0"),
    constraints="../clients/old-constraints.txt",
)


def node() -> str:
    """The interpreter for programs from npm."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        raise RuntimeError("Node.js 18 or newer and npm are needed, and one of them is not there")
    return found


def node_modules() -> Path:
    """The folder of everything from npm, installed first if it is not there."""
    folder, mark = cache() / "client-programs", cache() / "client-programs/.complete"
    lists = [HERE / "node" / name for name in ("package.json", "package-lock.json")]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in lists)).hexdigest()
    with locked(folder.name):
        if not (mark.is_file() and mark.read_text() == wanted):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for path in lists:
                shutil.copy(path, folder)
            node()
            run("npm", "ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
            mark.write_text(wanted)
    return folder / "node_modules"
