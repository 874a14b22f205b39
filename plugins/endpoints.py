"""The addresses of the API that go through the chain, one row each."""

from typing import Final, Literal, TypeAlias

from attrs import frozen

from kernel import Endpoint, Exchange

Dialect: TypeAlias = Literal["openai", "responses", "anthropic"]

OPENAI: Final = "openai"
RESPONSES_API: Final = "responses"
ANTHROPIC: Final = "anthropic"


@frozen(eq=False)
class Api(Endpoint):
    """A row of the table: what is said at an address, beside its `name`, `path` and `method`.

    `dialect` names the API that the address belongs to, and with it the shape of its errors (OpenAI's object for
    `openai` and `responses`, Anthropic's for `anthropic`). `grammar` is how its streams are written, None where
    nothing streams: `openai` ends in `data: [DONE]`, `responses` in `response.completed` or its like, `anthropic` in
    `message_stop`. `limits` are the fields that bound the answer's tokens, the one that counts first. `asked` is the
    path at workers, where that is another one.
    """

    dialect: Dialect = OPENAI
    grammar: Dialect | None = None
    limits: tuple[str, ...] = ()
    asked: str | None = None

    @property
    def worker_path(self) -> str:
        """The path under which workers have this API."""
        return self.asked or self.path


COMPLETIONS: Final = Api("completions", "/v1/completions", grammar=OPENAI, limits=("max_tokens",))
CHAT_COMPLETIONS: Final = Api(
    "chat_completions", "/v1/chat/completions", grammar=OPENAI, limits=("max_completion_tokens", "max_tokens")
)
RESPONSES: Final = Api(
    "responses", "/v1/responses", dialect=RESPONSES_API, grammar=RESPONSES_API, limits=("max_output_tokens",)
)
MESSAGES: Final = Api("messages", "/v1/messages", dialect=ANTHROPIC, grammar=ANTHROPIC, limits=("max_tokens",))
COUNT_TOKENS: Final = Api("count_tokens", "/v1/messages/count_tokens", dialect=ANTHROPIC)
MODELS: Final = Api("models", "/v1/models", "GET")
ONE_MODEL: Final = Api("model", "/v1/models/", "GET")
"""Everything below its path: the rest is a model's name, which may hold slashes; see `model_asked_for`."""
EMBEDDINGS: Final = Api("embeddings", "/v1/embeddings")
RERANK: Final = Api("rerank", "/v1/rerank")
RERANK_UNVERSIONED: Final = Api("rerank", "/rerank", asked=RERANK.path)
SCORE: Final = Api("score", "/v1/score")
SCORE_UNVERSIONED: Final = Api("score", "/score", asked=SCORE.path)
TOKENIZE: Final = Api("tokenize", "/tokenize")
DETOKENIZE: Final = Api("detokenize", "/detokenize")

GENERATIVE: Final[frozenset[Endpoint]] = frozenset((COMPLETIONS, CHAT_COMPLETIONS, RESPONSES, MESSAGES))
"""Endpoints whose requests make a model generate: they are counted, guarded and dispatched to legs."""

RELAYED: Final[frozenset[Endpoint]] = frozenset(
    (COUNT_TOKENS, EMBEDDINGS, RERANK, RERANK_UNVERSIONED, SCORE, SCORE_UNVERSIONED, TOKENIZE, DETOKENIZE)
)
"""Endpoints whose requests go to one worker as they are, and back: nothing is generated, no leg, no stream."""

NAMELESS: Final[frozenset[Endpoint]] = frozenset((TOKENIZE, DETOKENIZE))
"""Endpoints whose clients need not name a model; the slot `model` is then an empty string."""

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    COMPLETIONS, CHAT_COMPLETIONS, RESPONSES, MESSAGES, COUNT_TOKENS, MODELS, ONE_MODEL, EMBEDDINGS,
    RERANK, RERANK_UNVERSIONED, SCORE, SCORE_UNVERSIONED, TOKENIZE, DETOKENIZE,
)  # fmt: skip


def dialect_of(endpoint: Endpoint) -> Dialect:
    """The dialect of an endpoint, OpenAI's for one that is in no table."""
    return endpoint.dialect if isinstance(endpoint, Api) else OPENAI


def dialect_for(exchange: Exchange) -> Dialect:
    """The dialect in which a client is answered: its endpoint's, but models are listed as their caller knows them."""
    endpoint = exchange.endpoint
    if (endpoint is MODELS or endpoint is ONE_MODEL) and "anthropic-version" in exchange.headers:
        return ANTHROPIC
    return endpoint.dialect if isinstance(endpoint, Api) else OPENAI


def model_asked_for(exchange: Exchange) -> str:
    """The model's name in the path of a request to `ONE_MODEL`, its escapes resolved."""
    path: str = exchange.scope["path"]
    return path.partition(ONE_MODEL.path)[2]
