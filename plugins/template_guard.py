"""Refuses chat templates that come with a request."""

from typing import Any, Final

from attrs import frozen

from kernel import Exchange, PluginSpec, Rejection
from plugins.hooks import Hooks
from plugins.slots import PAYLOAD, Payload

_TEMPLATE: Final = "chat_template"
_ARGUMENTS: Final = frozenset(("chat_template_kwargs", "chat_template_args"))


@frozen
class TemplateGuard(Hooks):
    """Refuse a request that brings its own chat template, which is a program that the worker would run.

    A template counts at the top level and at any depth inside `chat_template_kwargs` and
    `chat_template_args`, its name in any case of letters (some JSON libraries ignore it); null is no
    template. Requests of every API are looked at, those that only count or embed too: workers render templates for
    them as well. `allow` lets them all pass.
    """

    allow: bool = False

    def on_request(self, exchange: Exchange) -> None:
        """Check.

        Raises:
            Rejection: 400, the request brings a template.
        """
        payload = None if self.allow else exchange.get(PAYLOAD)
        if payload is not None and _TEMPLATE in "\n".join(payload.data).casefold():
            _check(payload)


def _check(payload: Payload) -> None:
    names: list[str] = []
    for key, value in payload.data.items():
        folded = key.casefold()
        if _TEMPLATE in folded:
            names.append(key)
            if folded == _TEMPLATE and value is not None:
                raise _refusal(_TEMPLATE)
            if folded in _ARGUMENTS:
                _check_arguments(folded, value, names)
    if not payload.edited and not _is_unambiguous(payload.raw, names):
        payload.edit()


def _check_arguments(argument: str, value: Any, names: list[str]) -> None:
    """Look into an object of arguments; keys that look like a template's are added to `names`."""
    pending = [value]
    while pending:
        match pending.pop():
            case dict() as inner:
                for key, deeper in inner.items():
                    folded = key.casefold()
                    if folded == _TEMPLATE and deeper is not None:
                        raise _refusal(f"{argument}.{_TEMPLATE}")
                    if _TEMPLATE in folded:
                        names.append(key)
                    pending.append(deeper)
            case list() as items:
                pending.extend(items)


def _is_unambiguous(raw: bytes, names: list[str]) -> bool:
    """Whether `raw` spells each of the checked keys no more often than they were seen, and in no escapes.

    A key given twice means one thing here and may mean another to a worker; then what was checked must be sent.
    """
    if b"\\" in raw and b"\\u" in raw:
        return False
    return all(raw.count(name.encode()) == sum(seen.count(name) for seen in names) for name in names)


def _refusal(param: str) -> Rejection:
    message = "a chat template in the request is refused; the operator can allow it when the server is configured"
    return Rejection(400, message, "chat_template_refused", param=param)


PLUGIN = PluginSpec("template_guard", TemplateGuard, needs=(PAYLOAD,))
