"""The fields by which TensorRT-LLM's answers differ from others, and its packing of token ids."""

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence

from plugins.dispatch.embedded.stub.fields import is_token_ids
from plugins.dispatch.embedded.stub.replies import Extras


def trtllm_extras(*, chat: bool, prompt: Sequence[int] | None = None, packed: bool = False) -> Extras:
    """Make the engine's own fields; a context answer has its prompt's token ids in them.

    Only chat knows the packed form; a completions answer always has the list.
    """
    body: dict[str, object] = {"prompt_token_ids": prompt}
    if chat:
        packed = packed and prompt is not None
        body = {
            "prompt_token_ids": None if packed else prompt,
            "prompt_token_ids_b64": pack_token_ids(prompt or ()) if packed else None,
        }
    decoded = {"avg_decoded_tokens_per_iter": None}
    return Extras(
        body=body,
        choice={**({} if chat else {"token_ids": None}), "disaggregated_params": None, **decoded},
        message={"reasoning_content": None, "reasoning": None, "tool_calls": []},
        chunk_choice=decoded,
    )


def pack_token_ids(tokens: Sequence[int]) -> str:
    """Pack token ids as base64 of little-endian 32-bit integers."""
    return b64encode(_little(array("i", tokens)).tobytes()).decode()


def unpack_token_ids(packed: str) -> tuple[int, ...]:
    """Undo the packing; `ValueError` for what is not the base64 of whole, non-negative integers."""
    tokens = array("i")
    try:
        tokens.frombytes(b64decode(packed, validate=True))
    except ValueError:
        raise ValueError("prompt_token_ids_b64 is not the base64 of 32-bit integers") from None
    unpacked = _little(tokens).tolist()
    if not is_token_ids(unpacked):
        raise ValueError("prompt_token_ids_b64 holds a negative token id")
    return tuple(unpacked)


def _little(tokens: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
