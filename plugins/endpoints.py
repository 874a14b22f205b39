"""The addresses of the API that go through the chain."""

from typing import Final

from kernel import Endpoint

COMPLETIONS: Final = Endpoint("completions", "/v1/completions")
CHAT_COMPLETIONS: Final = Endpoint("chat_completions", "/v1/chat/completions")
RESPONSES: Final = Endpoint("responses", "/v1/responses")
MESSAGES: Final = Endpoint("messages", "/v1/messages")
COUNT_TOKENS: Final = Endpoint("count_tokens", "/v1/messages/count_tokens")
MODELS: Final = Endpoint("models", "/v1/models", "GET")

GENERATIVE: Final[frozenset[Endpoint]] = frozenset((COMPLETIONS, CHAT_COMPLETIONS))
"""Endpoints whose requests make a model generate: they are counted, guarded and dispatched to legs."""

ENDPOINTS: Final[tuple[Endpoint, ...]] = (COMPLETIONS, CHAT_COMPLETIONS, MODELS)
