"""LangChain's chat models for OpenAI's and Anthropic's APIs."""

from typing import Any, Literal

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

from tests.clients.programs.lines import LIMIT, Asked, Told, leaves, serve, tool_choice


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather in a city."""
    return f"fine in {city}"


def model(asked: Asked) -> Any:
    """The chat model that is asked."""
    limit = {"bad": -1, "leave": 4000, "killed": 4000}.get(asked["case"], LIMIT)
    common: dict[str, Any] = {"model": asked["model"], "api_key": "none", "max_retries": 0, "timeout": asked["seconds"]}
    if asked["api"] == "messages":
        return ChatAnthropic(base_url=asked["url"], max_tokens=limit, **common)
    responses = asked["api"] == "responses"
    return ChatOpenAI(base_url=asked["url"] + "/v1", max_tokens=limit, use_responses_api=responses, **common)


def answer(asked: Asked, told: Told) -> None:
    """Ask the kernel once, or twice where a tool is called."""
    asks = model(asked)
    prompt = asked["prompt"]
    match asked["case"]:
        case "chat" | "bad" | "long":
            show(asks.invoke(prompt), told)
        case "tool":
            said = asks.bind_tools([get_weather], **tool_choice(asked, "any")).invoke(prompt)
            (call,) = said.tool_calls
            told["called"] = call["args"]
            result = {"role": "tool", "tool_call_id": call["id"], "content": get_weather(**call["args"])}
            none = {"type": "none"} if asked["api"] == "messages" else "none"
            tools = asks.bind_tools([get_weather], **tool_choice(asked, none))
            show(tools.invoke([{"role": "user", "content": prompt}, said, result]), told)
        case "streamed tool":
            pieces = [*asks.bind_tools([get_weather], **tool_choice(asked, "any")).stream(prompt)]
            whole = sum(pieces[1:], start=pieces[0])
            told["called"] = whole.tool_calls[0]["args"]
        case _:
            stream(asks, asked, told)


def stream(asks: Any, asked: Asked, told: Told) -> None:
    """Read a stream of pieces."""
    for piece in asks.stream(asked["prompt"]):
        told["text"] += piece.text
        told["pieces"] += bool(piece.text)
        told["finish"] = finish(piece) or told.get("finish")
        told["tokens"] = piece.usage_metadata["output_tokens"] if piece.usage_metadata else told.get("tokens")
        if leaves(asked, told):
            return


def finish(said: Any) -> Any:
    """How an answer ended, in the words of its API."""
    metadata = said.response_metadata
    return metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("status")


def show(said: Any, told: Told) -> None:
    """Tell what a whole answer says."""
    told["text"] = said.text
    told["finish"] = finish(said)
    told["tokens"] = said.usage_metadata["output_tokens"]


if __name__ == "__main__":
    serve(answer)
