"""Scripts of workers that decline."""

from tests.dispatch.scripted import Script, Seen


def declines(status: int, message: str = "no", *headers: str) -> Script:
    """Always answers with a status of 400 or more."""

    async def decline(seen: Seen) -> None:
        await seen.answer(b'{"error":{"message":"%s"}}' % message.encode(), f"{status} No", *headers)

    return decline


async def stream(seen: Seen) -> None:
    """Streams one event."""
    await seen.begin_stream(b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n', b"data: [DONE]\n\n")
    await seen.end_stream()
