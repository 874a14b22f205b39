"""The client's fields as TensorRT-LLM's handoff can carry them: with one prompt."""

from typing import Any, Final

from kernel import Rejection
from plugins.dispatch.engine import Request
from plugins.endpoints import COMPLETIONS, RESPONSES

_PROMPT_IDS: Final = frozenset(("prompt_token_ids", "prompt_token_ids_b64"))
"""Part of a handoff. From a client they would stand in for the messages, past the chat template and its guard."""


def copy_fields(request: Request) -> dict[str, Any]:
    """The client's fields for one leg, with a single prompt, and the conversation where one is known."""
    data = dict(request.payload.data)
    if not _PROMPT_IDS.isdisjoint(data):
        for name in _PROMPT_IDS:
            data.pop(name, None)
    if request.endpoint is COMPLETIONS:
        data["prompt"] = one_prompt(data.get("prompt"))
    if request.endpoint is RESPONSES:
        data["store"] = False  # workers keep responses by default, and no other request would find them
    if request.conversation is not None:
        # the affinity of a sub-agent travels in signed headers, never in a body
        data["conversation_params"] = {"conversation_id": request.conversation.id}
    return data


def one_prompt(prompt: object) -> object:
    """The prompt without a list round it; a handoff names one prompt."""
    match prompt:
        case str() | [str()]:
            return prompt if isinstance(prompt, str) else prompt[0]
        case [list(tokens)] if _are_tokens(tokens):
            return tokens
        case list() if _are_tokens(prompt):
            return prompt
        case [str() | list(), _, *_]:
            raise Rejection(400, "several prompts in one request are not supported by this model", param="prompt")
        case _:
            raise Rejection(400, "the prompt must be a string or a non-empty list of token ids", param="prompt")


def _are_tokens(value: list[object]) -> bool:
    return bool(value) and all(type(item) is int for item in value)
