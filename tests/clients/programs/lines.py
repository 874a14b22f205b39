"""The way in which a test talks to a client in a process of its own: a line of JSON for each question and answer."""

import json
import sys
from collections.abc import Callable
from typing import Any

Asked = dict[str, Any]
Told = dict[str, Any]

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
"""What the tool `get_weather` is given."""

LIMIT = 64
"""Tokens of a usual answer."""

PIECES = 4
"""After how many pieces of a stream a client leaves that does not want the rest."""


def serve(answer: Callable[[Asked, Told], None]) -> None:
    """Answer each line of the input; an exception is told by the names of its class and of all that it is one of."""
    output, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not be heard here
    for line in sys.stdin:
        told: Told = {"text": "", "pieces": 0}
        try:
            answer(json.loads(line), told)
        except Exception as error:
            told["error"] = [kind.__name__ for kind in type(error).__mro__]
            told["status"] = getattr(error, "status_code", None)
            told["code"] = getattr(error, "code", None)
            told["message"] = str(error)
        output.write(json.dumps(told) + "\n")
        output.flush()


def tool_choice(asked: Asked, word: object) -> dict[str, object]:
    """The field that says whether a tool is to be called, where the model is not left to find that out itself."""
    return {"tool_choice": word} if asked.get("forced") else {}


def leaves(asked: Asked, told: Told) -> bool:
    """Whether the client wants no more of a stream."""
    return bool(asked["case"] == "leave" and told["pieces"] >= PIECES)
