"""What the live tests ask for besides a text: a tool's call, logarithms of probabilities, and what it cost."""

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

from tests.clients.programs.lines import WEATHER
from tests.live.details import Details, read
from tests.live.pair import ASKED, Expected, ask_aggregated
from tests.live.questions import CHAT, MESSAGES, RESPONSES, Question, fresh_prompt
from tests.live.worker import Worker

Fields = dict[str, Any]

PLAIN: Final = "What is the capital of France? Answer in one word."
"""A question that the model answers in one sentence, and then ends by itself."""


# tools are announced in the system prompt: the words that nobody has seen are put before it, as what is cached counts
_FUNCTION: Final[Fields] = {"name": "get_weather", "parameters": WEATHER}
_TOOLS: Final[dict[str, Callable[[str], Fields]]] = {
    "/v1/chat/completions": lambda words: {
        "messages": [{"role": role, "content": words} for role in ("system", "user")],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": "required",
    },
    "/v1/responses": lambda words: {
        "instructions": words,
        "tools": [{"type": "function", **_FUNCTION}],
        "tool_choice": "required",
    },
    "/v1/messages": lambda words: {
        "system": words,
        "tools": [{"name": "get_weather", "input_schema": WEATHER}],
        "tool_choice": {"type": "any"},
    },
}

_LOGPROBS: Final[dict[str, Callable[[str], Fields]]] = {
    "/v1/completions": lambda _: {"logprobs": 3},
    "/v1/chat/completions": lambda _: {"logprobs": True, "top_logprobs": 3},
    "/v1/responses": lambda _: {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
}


@frozen
class Subject:
    """What a question is asked for, by the fields that ask for it over each API that has them, and by most tokens."""

    name: str
    tokens: int
    fields: dict[str, Callable[[str], Fields]]

    def ask(self, question: Question, url: str, words: str) -> Details:
        """The answer of whoever serves at the URL."""
        counted = question.path.endswith("completions") and question.more.get("stream")
        options = {"stream_options": {"include_usage": True}} if counted else {}
        return read(question, question.ask(url, words, self.tokens, **options, **self.fields[question.path](words)))


TOOLS: Final = Subject("tools", 64, _TOOLS)
LOGPROBS: Final = Subject("logprobs", 12, _LOGPROBS)


PAIRS: Final = tuple(
    (subject, question) for subject in (TOOLS, LOGPROBS) for question in ASKED if question.path in subject.fields
)
"""All that is asked."""


@frozen
class Known:
    """A prompt, and what one worker answered to it at first, and again when it had cached the prompt."""

    words: str
    first: Details
    again: Details


@frozen
class Alone:
    """What one worker that does everything answers."""

    texts: dict[str, Expected]
    details: dict[tuple[str, str], Known]
    said: dict[str, Details]
    """To the question of all clients, by the path of the API."""


def ask_alone(worker: Worker) -> Alone:
    """Ask one worker everything."""
    details = {}
    for subject, question in PAIRS:
        words = fresh_prompt()
        answers = (subject.ask(question, worker.url, words) for _ in range(2))
        details[subject.name, question.name] = Known(words, *answers)
    said = {question.path: read(question, question.ask(worker.url, PLAIN)) for question in (CHAT, RESPONSES, MESSAGES)}
    return Alone(ask_aggregated(worker), details, said)
