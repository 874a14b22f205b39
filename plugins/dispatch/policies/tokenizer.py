"""Makes token ids of a prompt's text as a worker does, with the files of its model."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from attrs import frozen

from plugins.dispatch.policies.templates import Template, TemplateError, load_template

TEXT_LIMIT: Final = 4 * 1024 * 1024
"""Characters that are tokenised; a longer prompt is routed by load."""


class Encoding(Protocol):
    """What the library gives."""

    @property
    def ids(self) -> Sequence[int]:
        """The token ids."""
        ...


class Encoder(Protocol):
    """As much of the library `tokenizers` as is used."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding:
        """Make token ids of a text."""
        ...


@frozen(eq=False)
class Tokenizer:
    """May be used by several threads. Without a template, chats have no token ids."""

    encoder: Encoder
    template: Template | None = None

    def encode(self, data: Mapping[str, Any]) -> Sequence[int] | None:
        """The token ids of a request's prompt; None if they cannot be known."""
        prompt = data.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self._encode(prompt, special=data.get("add_special_tokens") is not False)
        if self.template is None or not isinstance(data.get("messages"), list):
            return None
        try:
            return self._encode(self.template.render(data), special=data.get("add_special_tokens") is True)
        except TemplateError:
            return None  # the worker will say what is wrong with it

    def _encode(self, text: str, *, special: bool) -> Sequence[int] | None:
        return None if len(text) > TEXT_LIMIT else self.encoder.encode(text, add_special_tokens=special).ids


def load_tokenizer(path: Path, template: Path | None = None) -> Tokenizer:
    """The tokenizer of a file `tokenizer.json`, and the chat template of another one.

    Raises:
        ValueError: a file cannot be read, or a library is missing.
        Exception: the library's own, of a file that is no tokenizer.
    """
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise ValueError(f"tokenizer cannot be read: {error}") from None
    return Tokenizer(_load(path, changed), None if template is None else load_template(template))


@lru_cache(maxsize=8)
def _load(path: Path, _changed: int) -> Encoder:
    """Read a file once for all versions of a configuration that have it: some have tens of megabytes."""
    try:
        from tokenizers import Tokenizer as Library
    except ImportError:
        raise ValueError("tokenizer needs the extra `tokenizer`: pip install 'disagg-kernel[tokenizer]'") from None
    encoder: Encoder = Library.from_str(path.read_text())
    return encoder
