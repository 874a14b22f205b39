"""Cuts prompts into blocks, and gives each block a number that stands for all of the prompt up to its end."""

from collections.abc import Sequence
from typing import Final

from plugins.dispatch.prompt import CHARACTERS_A_TOKEN, Prompt

BLOCKS: Final = 1024
"""Blocks of a prompt that are looked at; what comes behind does not say more about who has its beginning."""


def chain(prompt: str | Sequence[int], size: int, root: int = 0) -> list[int]:
    """The numbers of the full blocks of `size` characters or tokens, each made of its block and the one before.

    The numbers are the process's own. Two that are equal although their blocks are not cost a cached prefix, and
    nothing more.
    """
    numbers: list[int] = []
    number = root
    end = min(len(prompt), size * BLOCKS) - size
    if end < 0:
        return numbers
    if isinstance(prompt, str):
        for start in range(0, end + 1, size):
            number = hash((number, prompt[start : start + size]))
            numbers.append(number)
        return numbers
    ids = tuple(prompt[: end + size])
    try:
        for start in range(0, end + 1, size):
            number = hash((number, ids[start : start + size]))
            numbers.append(number)
    except TypeError:  # what cannot be hashed is no token id, and the worker will say so
        return numbers
    return numbers


def prompt_blocks(prompt: Prompt, size: int, *, skip: int = 0, use_token_ids: bool = True) -> list[int]:
    """The numbers of the blocks of `size` tokens of a prompt whose first `skip` tokens are left out.

    Of token ids where the client sent them and they are wanted, or sent nothing else; else of text.
    """
    ids = prompt.ids
    if ids is not None and (use_token_ids or "messages" not in prompt.data):
        return chain(ids[skip : skip + size * BLOCKS], size)
    size, skip = size * CHARACTERS_A_TOKEN, skip * CHARACTERS_A_TOKEN
    return chain(prompt.text(skip + size * BLOCKS)[skip:], size) if prompt.length >= skip + size else []
