"""The rules of SGLang between and beyond the types of a request's fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from plugins.dispatch.embedded.stub.apis import LIMITS
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.fields import Problem

Body = Mapping[str, Any]


def broken_rule(body: Body, api: str) -> str | None:
    """Say what of a body does not go together although its fields are well formed by themselves."""
    for kind in _foreign_parts(body):
        return f"Model only supports text input; received unsupported content type {kind!r}."
    if body.get("previous_response_id") is not None:
        return "Response store is disabled. Stateful Responses are not available in this deployment."
    limit = asked_limit(body, api)
    return None if limit is None or limit >= 0 else f"max_new_tokens must be at least 0, got {limit}."


def asked_limit(body: Body, api: str) -> int | None:
    """Give the limit that a body sets to its answer, if it sets one."""
    limit = next((body[name] for name in LIMITS.get(api, ()) if body.get(name) is not None), None)
    return None if limit is None else int(limit)


def broken_limit(job: Job, fitted: Job, longest: int) -> str | None:
    """Say why an answer of the length that was asked for cannot be, given one that could."""
    if job.limit > longest:
        words = f"This model supports at most {longest} completion tokens."
        return f"max_completion_tokens is too large: {job.limit}.{words}"
    if fitted.limit == job.limit:
        return None
    tokens = max(map(len, job.prompts))
    return (
        f"Requested token count exceeds the model's maximum context length of {longest} tokens. You requested a total "
        f"of {tokens + job.limit} tokens: {tokens} tokens from the input messages and {job.limit} tokens for the "
        f"completion."
    )


def tell_plainly(problems: list[Problem]) -> str:
    """Put problems into words the way that the messages API does."""
    return "; ".join(f"{problem.path.removeprefix('body.')}: {problem.message}" for problem in problems)


def _foreign_parts(body: Body) -> Iterator[str]:
    """Yield the type of each part of each message that is no text."""
    for message in body.get("messages") or ():
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and "image" in str(part.get("type")):
                yield str(part["type"])
