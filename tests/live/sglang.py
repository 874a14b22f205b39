"""A real SGLang worker on the CPU, whose KV caches go over Mooncake by TCP.

The published package is for GPUs: it serves on the CPU all the same, once the one function of the GPU's driver that
it wants at import is there, and with the attention and the sampling that PyTorch has for both.
"""

import subprocess
from ctypes.util import find_library
from pathlib import Path
from typing import Final

from attrs import define

from bench.cache import cache, locked
from tests.live.environment import SGLANG, engine_variables, model_folder
from tests.live.worker import MODEL, Worker

_ROLES: Final = {"context": "prefill", "generation": "decode"}
_LIBRARIES: Final = ("ibverbs", "rdmacm", "numa")
_DRIVER: Final = "int cuPointerGetAttribute(void) { return 100; }\n"  # CUDA_ERROR_NO_DEVICE


@define(eq=False)
class SglangWorker(Worker):
    """An SGLang server. In a pair, `side_port` of the context worker is where both find each other."""

    bootstrap_port: int = 0

    def computed(self) -> float:
        """How many tokens of prompts it has computed itself."""
        return self.metric("sglang:realtime_tokens_total", mode="prefill_compute")

    def busy(self) -> float:
        """How many requests it runs, or holds for later or for the other worker."""
        names = ("running", "queue", "prefill_bootstrap_queue", "prefill_inflight_queue")
        waiting = ("decode_prealloc_queue", "decode_transfer_queue")
        return sum(self.metric(f"sglang:num_{name}_reqs") for name in (*names, *waiting))

    def command(self) -> list[str]:
        """The words that start it, its interpreter first."""
        words = [
            *(str(SGLANG.ready()), "-m", "sglang.launch_server", "--model-path", str(model_folder())),
            *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--device", "cpu", "--dtype", "float32", "--disable-overlap-schedule"),
            *("--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
            *("--context-length", "2048", "--max-total-tokens", "8192", "--max-running-requests", "4"),
            *("--mem-fraction-static", "0.3", "--tool-call-parser", "qwen"),
            *("--enable-metrics", "--enable-cache-report"),
        ]
        if self.role is None:
            return words
        pair = ["--disaggregation-mode", _ROLES[self.role], "--disaggregation-transfer-backend", "mooncake"]
        port = ["--disaggregation-bootstrap-port", str(self.bootstrap_port)]
        # what a generation worker puts aside when it is full would go to pinned memory, which needs a GPU
        aside = ["--disaggregation-decode-retraction-backup", "none"] if self.role == "generation" else []
        return [*words, *pair, *port, *aside]

    def variables(self) -> dict[str, str]:
        """The variables of its process."""
        return engine_variables() | {
            "LD_LIBRARY_PATH": str(_driver()),
            "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_HOST_IP": "127.0.0.1",
            "MC_FORCE_TCP": "1",
            "MC_TCP_BIND_ADDRESS": "127.0.0.1",
            "MOONCAKE_PROTOCOL": "tcp",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }


def check_libraries() -> None:
    """See that the libraries are there that Mooncake is linked with, needed or not.

    Raises:
        RuntimeError: it names the packages that are missing.
    """
    missing = [f"lib{name}1" for name in _LIBRARIES if find_library(name) is None]
    if missing:
        raise RuntimeError(f"a SGLang pair needs the Debian packages {' '.join(missing)}")


def _driver() -> Path:
    """The folder of a library that stands in for the GPU's driver, made at first use."""
    folder = cache() / "no-gpu-driver"
    library = folder / "libcuda.so.1"
    with locked("no-gpu-driver"):
        if not library.exists():
            folder.mkdir(exist_ok=True)
            words = ("cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(library))
            subprocess.run(words, input=_DRIVER, text=True, check=True, timeout=60)
    return folder
