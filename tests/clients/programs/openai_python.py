"""OpenAI's Python library, of any generation."""

import json
from typing import Any

import openai

from tests.clients.programs.lines import LIMIT, WEATHER, Asked, Told, leaves, serve, tool_choice

CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}}
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}


def answer(asked: Asked, told: Told) -> None:
    """Ask the kernel once, or twice where a tool is called."""
    client: Any = openai.OpenAI(base_url=asked["url"] + "/v1", api_key="none", max_retries=0, timeout=asked["seconds"])
    with client:
        (chat if asked["api"] == "chat" else respond)(client, asked, told)


def chat(client: Any, asked: Asked, told: Told) -> None:
    """Ask over chat completions."""
    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    fields = {"model": asked["model"], "messages": messages, "max_completion_tokens": LIMIT}
    forced = {"tools": [CHAT_TOOL], **tool_choice(asked, "required")}
    match asked["case"]:
        case "models":
            told["models"] = [model.id for model in client.models.list()]
            told["model"] = client.models.retrieve(asked["model"]).id
        case "chat":
            show_chat(client.chat.completions.create(**fields), told)
        case "bad":
            client.chat.completions.create(**fields | {"max_completion_tokens": -1})
        case "long":
            client.chat.completions.create(**fields)
        case "tool":
            said = client.chat.completions.create(**fields, **forced).choices[0].message
            (call,) = said.tool_calls
            told["called"] = json.loads(call.function.arguments)
            result = {"role": "tool", "tool_call_id": call.id, "content": "fine"}
            messages += [said.to_dict(), result]
            show_chat(client.chat.completions.create(**fields, **forced | tool_choice(asked, "none")), told)
        case "streamed tool":
            with helper(client).stream(**fields, **forced) as events:
                said = events.get_final_completion().choices[0].message
            told["called"] = said.tool_calls[0].function.parsed_arguments or json.loads(
                said.tool_calls[0].function.arguments
            )
        case _:
            stream_chat(client, asked, told, fields)


def helper(client: Any) -> Any:
    """Where the helper for streams of chats is: it was in beta in older generations."""
    return client.chat.completions if hasattr(client.chat.completions, "stream") else client.beta.chat.completions


def stream_chat(client: Any, asked: Asked, told: Told, fields: dict[str, Any]) -> None:
    """Read a stream of chunks."""
    limit = {"max_completion_tokens": 4000} if asked["case"] in {"leave", "killed"} else {}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with client.chat.completions.create(**fields | limit, **options) as chunks:
        for chunk in chunks:
            told["tokens"] = chunk.usage.completion_tokens if chunk.usage else None
            for choice in chunk.choices:
                told["text"] += choice.delta.content or ""
                told["pieces"] += bool(choice.delta.content)
                told["finish"] = choice.finish_reason
            if leaves(asked, told):
                return


def show_chat(completion: Any, told: Told) -> None:
    """Tell what a whole answer says."""
    told["text"] = completion.choices[0].message.content
    told["finish"] = completion.choices[0].finish_reason
    told["tokens"] = completion.usage.completion_tokens


def respond(client: Any, asked: Asked, told: Told) -> None:
    """Ask over Responses."""
    items: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    fields = {"model": asked["model"], "input": items, "max_output_tokens": LIMIT}
    forced = {"tools": [TOOL], **tool_choice(asked, "required")}
    match asked["case"]:
        case "chat":
            show_response(client.responses.create(**fields), told)
        case "bad":
            client.responses.create(**fields | {"max_output_tokens": -1})
        case "long":
            client.responses.create(**fields)
        case "tool":
            (call,) = client.responses.create(**fields, **forced).output
            told["called"] = json.loads(call.arguments)
            items += [call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "fine"}]
            show_response(client.responses.create(**fields, **forced | tool_choice(asked, "none")), told)
        case "streamed tool":
            with client.responses.stream(**fields, **forced) as events:
                told["called"] = json.loads(events.get_final_response().output[0].arguments)
        case _:
            stream_response(client, asked, told, fields)


def stream_response(client: Any, asked: Asked, told: Told, fields: dict[str, Any]) -> None:
    """Read a stream of events, and put them together as the library does."""
    limit = {"max_output_tokens": 4000} if asked["case"] in {"leave", "killed"} else {}
    with client.responses.stream(**fields | limit) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                told["text"] += event.delta
                told["pieces"] += 1
            if event.type in {"error", "response.failed"}:
                told.setdefault("failed", []).append(event.type)
            if leaves(asked, told):
                return
        final = events.get_final_response()
    assert final.output_text == told["text"]
    show_response(final, told)


def show_response(response: Any, told: Told) -> None:
    """Tell what a whole response says."""
    told["text"] = response.output_text
    told["finish"] = response.status
    told["tokens"] = response.usage.output_tokens


if __name__ == "__main__":
    serve(answer)
