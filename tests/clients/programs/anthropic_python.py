"""Anthropic's Python library, of any generation."""

from typing import Any

import anthropic

from tests.clients.programs.lines import LIMIT, WEATHER, Asked, Told, leaves, serve, tool_choice

TOOL: Any = {"name": "get_weather", "input_schema": WEATHER}


def answer(asked: Asked, told: Told) -> None:
    """Ask the kernel once, or twice where a tool is called."""
    client: Any = anthropic.Anthropic(base_url=asked["url"], api_key="none", max_retries=0, timeout=asked["seconds"])
    with client:
        ask(client, asked, told)


def ask(client: Any, asked: Asked, told: Told) -> None:
    """Ask over messages."""
    turns: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    fields = {"model": asked["model"], "messages": turns, "max_tokens": LIMIT}
    forced = {"tools": [TOOL], **tool_choice(asked, {"type": "any"})}
    match asked["case"]:
        case "models":
            told["models"] = [model.id for model in client.models.list()]
            told["model"] = client.models.retrieve(asked["model"]).id
        case "count":
            told["tokens"] = client.messages.count_tokens(model=asked["model"], messages=turns).input_tokens
        case "beta":
            show(client.beta.messages.create(**fields, betas=["interleaved-thinking-2025-05-14"]), told)
        case "chat":
            show(client.messages.create(**fields), told)
        case "bad":
            client.messages.create(**fields | {"max_tokens": -1})
        case "long":
            client.messages.create(**fields)
        case "tool":
            said = client.messages.create(**fields, **forced)
            (call,) = said.content
            told["called"] = call.input
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "fine"}
            turns += [{"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
            show(client.messages.create(**fields, **forced | tool_choice(asked, {"type": "none"})), told)
        case "streamed tool":
            with client.messages.stream(**fields, **forced) as events:
                told["called"] = events.get_final_message().content[0].input
        case _:
            stream(client, asked, told, fields)


def stream(client: Any, asked: Asked, told: Told, fields: dict[str, Any]) -> None:
    """Read a stream of events, and put them together as the library does."""
    limit = {"max_tokens": 4000} if asked["case"] in {"leave", "killed"} else {}
    with client.messages.stream(**fields | limit) as events:
        for text in events.text_stream:
            told["text"] += text
            told["pieces"] += 1
            if leaves(asked, told):
                return
        final = events.get_final_message()
    assert final.content[0].text == told["text"]
    show(final, told)


def show(message: Any, told: Told) -> None:
    """Tell what a whole message says."""
    told["text"] = message.content[0].text
    told["finish"] = message.stop_reason
    told["tokens"] = message.usage.output_tokens


if __name__ == "__main__":
    serve(answer)
