"""LiteLLM, which speaks OpenAI's and Anthropic's APIs and maps their errors by what these say."""

import json
from typing import Any

import litellm

from tests.clients.programs.lines import LIMIT, WEATHER, Asked, Told, leaves, serve, tool_choice

TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}


def answer(asked: Asked, told: Told) -> None:
    """Ask the kernel once, or twice where a tool is called."""
    anthropic = asked["api"] == "messages"
    base = asked["url"] if anthropic else asked["url"] + "/v1"
    provider = "anthropic" if anthropic else "hosted_vllm" if asked["api"] == "vllm" else "openai"
    common = {"model": f"{provider}/{asked['model']}", "api_base": base, "api_key": "none", "num_retries": 0}
    (respond if asked["api"] == "responses" else chat)(common | {"timeout": asked["seconds"]}, asked, told)


def chat(common: dict[str, Any], asked: Asked, told: Told) -> None:
    """Ask over chat completions, or over messages as if they were."""
    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    fields: dict[str, Any] = {**common, "messages": messages, "max_tokens": LIMIT}
    forced = {"tools": [TOOL], **tool_choice(asked, "required")}
    match asked["case"]:
        case "chat":
            show(litellm.completion(**fields), told)
        case "bad":
            litellm.completion(**fields | {"max_tokens": -1})
        case "long":
            litellm.completion(**fields)
        case "tool":
            said = litellm.completion(**fields, **forced).choices[0].message
            (call,) = said.tool_calls
            told["called"] = json.loads(call.function.arguments)
            messages += [said, {"role": "tool", "tool_call_id": call.id, "content": "fine"}]
            show(litellm.completion(**fields, **forced | tool_choice(asked, "none")), told)
        case "streamed tool":
            chunks = [*litellm.completion(**fields, **forced, stream=True)]
            built: Any = litellm.stream_chunk_builder(chunks)
            told["called"] = json.loads(built.choices[0].message.tool_calls[0].function.arguments)
        case _:
            stream(asked, told, fields)


def stream(asked: Asked, told: Told, fields: dict[str, Any]) -> None:
    """Read a stream of chunks."""
    if asked["case"] in {"leave", "killed"}:
        fields["max_tokens"] = 4000
    chunks: Any = litellm.completion(**fields, stream=True, stream_options={"include_usage": True})
    for chunk in chunks:
        usage = getattr(chunk, "usage", None)
        told["tokens"] = usage.completion_tokens if usage else told.get("tokens")
        for choice in chunk.choices:
            told["text"] += choice.delta.content or ""
            told["pieces"] += bool(choice.delta.content)
            told["finish"] = choice.finish_reason or told.get("finish")
        if leaves(asked, told):
            chunks.close()
            return


def show(completion: Any, told: Told) -> None:
    """Tell what a whole answer says."""
    told["text"] = completion.choices[0].message.content
    told["finish"] = completion.choices[0].finish_reason
    told["tokens"] = completion.usage.completion_tokens


def respond(common: dict[str, Any], asked: Asked, told: Told) -> None:
    """Ask over Responses."""
    items: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    fields: dict[str, Any] = {**common, "input": items, "max_output_tokens": LIMIT}
    forced = {"tools": [{"type": "function", **TOOL["function"]}], **tool_choice(asked, "required")}
    match asked["case"]:
        case "chat":
            show_response(litellm.responses(**fields), told)
        case "bad":
            litellm.responses(**fields | {"max_output_tokens": -1})
        case "long":
            litellm.responses(**fields)
        case "tool":
            (call,) = litellm.responses(**fields, **forced).output
            told["called"] = json.loads(call.arguments)
            items += [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "fine"}]
            show_response(litellm.responses(**fields, **forced | tool_choice(asked, "none")), told)
        case "streamed tool":
            events = [*litellm.responses(**fields, **forced, stream=True)]
            told["called"] = json.loads(events[-1].response.output[0].arguments)
        case _:
            stream_response(asked, told, fields)


def stream_response(asked: Asked, told: Told, fields: dict[str, Any]) -> None:
    """Read a stream of events."""
    for event in litellm.responses(**fields, stream=True):
        if event.type == "response.output_text.delta":
            told["text"] += event.delta
            told["pieces"] += 1
        elif event.type in {"error", "response.failed"}:
            told.setdefault("failed", []).append(str(event.type))
        elif event.type == "response.completed":
            show_response(event.response, told)
        if leaves(asked, told):
            return


def show_response(response: Any, told: Told) -> None:
    """Tell what a whole response says."""
    told["text"] = response.output[0].content[0].text
    told["finish"] = response.status
    told["tokens"] = response.usage.output_tokens


if __name__ == "__main__":
    serve(answer)
