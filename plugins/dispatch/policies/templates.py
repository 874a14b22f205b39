"""Chat templates of models, rendered where nothing but the messages can be reached."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the expressions of a template raise besides the library's own errors."""


class TemplateError(ValueError):
    """The template refuses the messages, or cannot deal with them."""


@frozen
class Template:
    """A chat template and the model's special tokens. The template is the operator's, never a client's."""

    _template: Any = field(repr=False)
    _tokens: Mapping[str, str] = field(repr=False)
    _errors: tuple[type[Exception], ...] = field(repr=False)

    def render(self, data: Mapping[str, Any]) -> str:
        """The text of a chat request.

        Raises:
            TemplateError: there is none.
        """
        options = data.get("chat_template_kwargs")
        try:
            text: str = self._template.render(
                **self._tokens,
                **(options if isinstance(options, dict) else {}),
                messages=data.get("messages"),
                tools=data.get("tools"),
                add_generation_prompt=data.get("add_generation_prompt", True),
            )
        except self._errors as error:
            raise TemplateError(f"the template cannot be rendered: {type(error).__name__}") from error
        return text


def load_template(path: Path) -> Template:
    """Read a template; the special tokens are those of a `tokenizer_config.json` beside it.

    Raises:
        ValueError: it cannot be read or is none, or the library is missing.
    """
    try:
        from jinja2 import TemplateError as JinjaError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ValueError("chat_template needs the extra `tokenizer`: pip install 'disagg-kernel[tokenizer]'") from None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = _refuse
    try:
        template = environment.from_string(path.read_text())
        tokens = _read_tokens(path.with_name("tokenizer_config.json"))
    except (OSError, ValueError, JinjaError) as error:
        raise ValueError(f"chat_template cannot be used: {error}") from None
    return Template(template, tokens, (JinjaError, *_ERRORS))


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _read_tokens(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    settings = json.loads(path.read_text())
    if not isinstance(settings, dict):
        raise ValueError(f"{path.name} is no JSON object")  # noqa: TRY004  # as for every file that cannot be used
    tokens = {}
    for name in _SPECIAL:
        token = settings.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            tokens[name] = token
    return tokens
