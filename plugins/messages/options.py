"""What a request says about thinking, effort, context and the form of the answer."""

from typing import Any, Final

from plugins.chat.reading import Data, object_in, refusal, text_in

LEAST_BUDGET: Final = 1024
"""Tokens; Anthropic's lower bound."""

_CLEAR_THINKING: Final = "clear_thinking_"


def option_fields(data: Data, limit: int) -> Data:
    """The chat fields for them; `limit` is the request's `max_tokens`.

    A client's own `chat_template_kwargs` win over those that are derived.

    Raises:
        InvalidRequest: 400, an option is malformed or not to be had.
    """
    fields: Data = {}
    arguments: Data = {}
    _think(data, limit, fields, arguments)
    _form(data, fields, arguments)
    edits = object_in(data, "context_management").get("edits")
    if any(_keeps_thinking(edit) for edit in (edits if isinstance(edits, list) else ())):
        arguments |= {"clear_thinking": False, "drop_thinking": False}
    own = object_in(data, "chat_template_kwargs")
    if arguments or own:
        fields["chat_template_kwargs"] = arguments | own
    return fields


def _think(data: Data, limit: int, fields: Data, arguments: Data) -> None:
    thinking = object_in(data, "thinking")
    if not thinking:
        return
    match thinking.get("type"):
        case "enabled":
            budget = thinking.get("budget_tokens")
            if not isinstance(budget, int) or isinstance(budget, bool) or budget < LEAST_BUDGET:
                raise refusal("thinking.budget_tokens", f"expected an integer of at least {LEAST_BUDGET}")
            if budget >= limit:
                raise refusal("thinking.budget_tokens", "must be less than max_tokens")
            fields["thinking_token_budget"] = budget
            arguments["enable_thinking"] = True
        case "adaptive":
            arguments["enable_thinking"] = True
        case "disabled":
            arguments["enable_thinking"] = False
        case _:
            raise refusal("thinking.type", "expected enabled, adaptive or disabled")


def _form(data: Data, fields: Data, arguments: Data) -> None:
    output = object_in(data, "output_config")
    if output.get("effort") is not None:
        arguments["reasoning_effort"] = text_in(output, "effort", "output_config", empty=False)
    place, form = "output_config.format", output.get("format")
    if form is None:
        place, form = "output_format", data.get("output_format")  # how the first SDKs with it spell it
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise refusal(place, "expected type json_schema with a schema")
    fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"]}}


def _keeps_thinking(edit: Any) -> bool:
    if not isinstance(edit, dict) or not str(edit.get("type")).startswith(_CLEAR_THINKING):
        return False
    keep = edit.get("keep")
    return keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all")
