"""The fields by which TensorRT-LLM's answers differ from others, and its packing of token ids."""

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

from plugins.dispatch.embedded.stub.apis import RESPONSES
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.fields import is_token_ids
from plugins.dispatch.embedded.stub.shapes.base import Choice, Shape
from plugins.dispatch.embedded.stub.shapes.openai import Extras, OpenAIShape
from plugins.dispatch.embedded.stub.shapes.responses import ResponsesShape


def trtllm_shape(job: Job, model: str) -> Shape:
    """Make the shape of an answer; a context answer is completed by `tell_handoff`."""
    if job.api == RESPONSES:
        return ResponsesShape(model, job.limit)
    return OpenAIShape(job.chat, model, job.asked, job.choices, _extras(chat=job.chat))


def tell_handoff(
    shape: Shape, choices: Sequence[Choice], prompt: Prompt, handoff: object, *, packed: bool
) -> Mapping[str, object]:
    """Put a handoff and its prompt's token ids where an API's answers have them."""
    if isinstance(shape, OpenAIShape):
        shape.extras = _extras(chat=shape.chat, prompt=prompt, packed=packed, handoff=handoff)
        return shape.extras.body
    return {
        "disaggregated_params": handoff,
        "finish_reason": choices[0].finish_reason,
        "prompt_token_ids": None if packed else prompt,
        "prompt_token_ids_b64": pack_token_ids(prompt) if packed else None,
    }


def _extras(*, chat: bool, prompt: Sequence[int] | None = None, packed: bool = False, handoff: object = None) -> Extras:
    """Make the engine's own fields. Only chat knows the packed form; completions always have the list."""
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
        choice={**({} if chat else {"token_ids": None}), "disaggregated_params": handoff, **decoded},
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
