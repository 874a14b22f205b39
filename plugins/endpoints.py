"""The addresses of the API that go through the chain."""

from typing import Final

from kernel import Endpoint

COMPLETIONS: Final = Endpoint("completions", "/v1/completions")
CHAT_COMPLETIONS: Final = Endpoint("chat_completions", "/v1/chat/completions")
MODELS: Final = Endpoint("models", "/v1/models", "GET")

GENERATIVE: Final[frozenset[Endpoint]] = frozenset((COMPLETIONS, CHAT_COMPLETIONS))
"""Endpoints whose requests make a model generate: they are counted, guarded and dispatched to legs."""

ENDPOINTS: Final[tuple[Endpoint, ...]] = (COMPLETIONS, CHAT_COMPLETIONS, MODELS)
