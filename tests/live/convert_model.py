"""A program for an engine's interpreter: writes a GGUF file as the folder of weights and words that engines load."""

import shutil
import sys
import tempfile
from pathlib import Path


def convert(weights: Path, template: Path, folder: Path) -> None:
    """Write `folder`, complete or not at all."""
    import torch  # type: ignore[import-not-found]  # the engine's interpreter has them
    from transformers import (  # type: ignore[import-not-found]
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    source, name = str(weights.parent), weights.name
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),  # packed weights could not be saved
    )
    # What is left of the packed form would be written down, and looked for by whoever loads the folder.
    for holder in (model, model.config):
        for leftover in ("quantization_config", "hf_quantizer", "quantization_method", "is_quantized"):
            vars(holder).pop(leftover, None)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    tokenizer.chat_template = template.read_text()

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    convert(*(Path(word) for word in sys.argv[1:4]))
