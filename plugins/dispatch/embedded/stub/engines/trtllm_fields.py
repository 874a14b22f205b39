"""The request fields of TensorRT-LLM's endpoints."""

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.fields import (
    ANY,
    BOOLEAN,
    COUNT,
    INTEGER,
    LIST,
    NUMBER,
    OBJECT,
    PROMPT,
    SHARE,
    STOP,
    STRING,
    TOKEN_IDS,
    Kind,
    Table,
    is_integer,
    literal,
    nested,
    optional,
    present,
    required,
)

_USAGE: Final = Table(
    {
        **present(INTEGER, "prompt_tokens total_tokens"),
        **optional(INTEGER, "completion_tokens"),
        **nested(Table(present(INTEGER, "cached_tokens")), "prompt_tokens_details"),
    }
)

HANDOFF: Final = Table(
    {
        **required(STRING, "request_type"),
        **optional(TOKEN_IDS, "first_gen_tokens draft_tokens"),
        **optional(LIST, "first_gen_log_probs first_gen_logits"),
        **optional(INTEGER, "ctx_request_id disagg_request_id ctx_dp_rank"),
        **optional(STRING, "encoded_opaque_state ctx_info_endpoint"),
        **optional(Kind("enum", "0 or 1", lambda value: is_integer(value) and value in (0, 1)), "schedule_style"),
        **nested(_USAGE, "ctx_usage"),
        **present(BOOLEAN, "return_prompt_token_ids_b64"),
        **optional(BOOLEAN, "resolved_thinking"),
        **optional(ANY, "remote_tail_start"),
    }
)

_CONVERSATION: Final = Table(
    {
        **required(
            Kind("value_error", "a non-empty id", lambda value: value is not None and bool(str(value).strip())),
            "conversation_id",
        ),
        **optional(STRING, "subagent_affinity_id"),
    }
)

_FORMAT: Final = Table(
    {
        **required(literal("text", "json", "json_schema", "json_object", "regex", "ebnf", "structural_tag"), "type"),
        **optional(OBJECT, "schema json_schema"),
        **optional(STRING, "regex ebnf"),
        **optional(ANY, "format"),
    }
)

_FUNCTION: Final = Table(
    {
        **required(STRING, "name"),
        **optional(STRING, "description"),
        **optional(OBJECT, "parameters"),
        **optional(BOOLEAN, "strict"),
    }
)
_TOOL: Final = Table(
    {
        **present(literal("function"), "type"),
        **required(evolve(OBJECT, nested=_FUNCTION), "function"),
    }
)
_THINKING: Final = Table(
    {
        **present(literal("enabled", "disabled"), "type"),
        **optional(literal("all"), "keep"),
        **optional(literal("low", "high", "max"), "effort"),
    }
)
_MESSAGE: Final = Table(required(STRING, "role"), open=True)

_SHARED: Final[Mapping[str, Kind]] = {
    **required(STRING, "model"),
    **optional(NUMBER, "frequency_penalty presence_penalty temperature top_p length_penalty"),
    **optional(INTEGER, "best_of seed prompt_ignore_length thinking_token_budget"),
    **optional(OBJECT, "logit_bias lora_request"),
    **optional(BOOLEAN, "stream"),
    **optional(STRING, "user"),
    **optional(STOP, "stop"),
    **optional(TOKEN_IDS, "stop_token_ids"),
    **optional(COUNT, "truncate_prompt_tokens"),
    **optional(
        Kind("bool_type", "a boolean or 'never'", lambda value: isinstance(value, bool) or value == "never"),
        "early_stopping",
    ),
    **optional(SHARE, "priority"),
    **present(INTEGER, "n top_k min_tokens"),
    **present(NUMBER, "top_p_min min_p repetition_penalty"),
    **present(BOOLEAN, "use_beam_search include_stop_str_in_output ignore_eos skip_special_tokens"),
    **present(BOOLEAN, "spaces_between_special_tokens add_special_tokens"),
    **nested(Table(optional(BOOLEAN, "include_usage continuous_usage_stats")), "stream_options"),
    **nested(_FORMAT, "response_format"),
    **nested(HANDOFF, "disaggregated_params"),
    **nested(_CONVERSATION, "conversation_params"),
}

COMPLETIONS: Final = Table(
    {
        **_SHARED,
        **required(PROMPT, "prompt"),
        **optional(BOOLEAN, "echo"),
        **optional(INTEGER, "logprobs max_tokens"),
        **optional(STRING, "suffix"),
        **present(BOOLEAN, "return_context_logits detokenize"),
    }
)

CHAT: Final = Table(
    {
        **_SHARED,
        **required(evolve(LIST, nested=_MESSAGE), "messages"),
        **optional(TOKEN_IDS, "prompt_token_ids"),
        **optional(STRING, "prompt_token_ids_b64 chat_template cache_salt"),
        **optional(BOOLEAN, "logprobs"),
        **optional(INTEGER, "top_logprobs max_completion_tokens max_tokens"),
        **optional(evolve(LIST, nested=_TOOL), "tools"),
        **optional(
            Kind(
                "union_type",
                "'none', 'auto', 'required' or a named function",
                lambda value: value in ("none", "auto", "required") or isinstance(value, dict),
            ),
            "tool_choice",
        ),
        **optional(literal("low", "medium", "high", "max", "none"), "reasoning_effort"),
        **nested(_THINKING, "thinking"),
        **present(BOOLEAN, "echo add_generation_prompt"),
        **optional(LIST, "documents injected_chat_template_kwargs"),
        **optional(OBJECT, "chat_template_kwargs media_io_kwargs mm_processor_kwargs"),
        **optional(ANY, "agent_hierarchy"),
    }
)

_INPUT: Final = Kind("union_type", "a string or a list of items", lambda value: isinstance(value, str | list))

RESPONSES: Final = Table(
    {
        **required(STRING, "model"),
        **required(evolve(_INPUT, nested=Table({}, open=True)), "input"),
        **optional(STRING, "instructions previous_response_id user prompt_token_ids_b64"),
        **optional(INTEGER, "max_output_tokens max_tool_calls top_logprobs thinking_token_budget"),
        **optional(NUMBER, "temperature top_p"),
        **present(BOOLEAN, "background parallel_tool_calls store stream"),
        **optional(TOKEN_IDS, "prompt_token_ids"),
        **optional(LIST, "tools include"),
        **nested(HANDOFF, "disaggregated_params"),
        **nested(_CONVERSATION, "conversation_params"),
    },
    open=True,
)
TABLES: Final[Mapping[str, Table]] = {apis.COMPLETIONS: COMPLETIONS, apis.CHAT: CHAT, apis.RESPONSES: RESPONSES}
