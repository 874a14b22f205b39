"""One request on its way through its plan."""

from collections.abc import Mapping

from attrs import define, field, frozen

from kernel import Endpoint, Exchange
from plugins.dispatch.abilities import Connects, Frees, TriesFirst
from plugins.dispatch.apis import apis_of
from plugins.dispatch.budget import RetryBudget
from plugins.dispatch.client import Limits
from plugins.dispatch.engine import Engine, Request
from plugins.dispatch.errands import Errands
from plugins.dispatch.forgeries import strip_handoffs
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.headers import REQUEST_ID, headers_for_worker
from plugins.dispatch.introductions import Introductions
from plugins.dispatch.links import Links
from plugins.dispatch.pool import Pool
from plugins.dispatch.rejections import api_missing
from plugins.dispatch.retry import Retries, RetryConfig
from plugins.dispatch.worker import Role
from plugins.endpoints import NAMELESS
from plugins.slots import (
    CONVERSATION,
    DEADLINE,
    OFFER,
    PAYLOAD,
    PERFORMANCE,
    SERVED,
    STREAM,
    TIMING,
    TRANSLATED,
    Payload,
    Served,
    Timing,
)


@frozen(eq=False)
class Patience:
    """How long legs may take: those that are streamed, and those that answer as a whole."""

    streamed: Limits
    whole: Limits


@frozen(eq=False)
class Service:
    """What serves one model: an engine, and a pool for each role of the engine's plan.

    `apis` are the names of the endpoints that its workers answer. `links`, `frees` and `tries` are there for an engine
    that connects its workers, one that frees what they hold, and one that asks generation workers first.
    """

    model: str
    engine: Engine
    pools: Mapping[Role, Pool]
    patience: Patience
    retry_seconds: int
    handoffs: HandoffConfig = field(factory=HandoffConfig)
    errands: Errands = field(factory=Errands)
    introductions: Introductions = field(factory=Introductions)
    retry: RetryConfig = field(factory=RetryConfig)
    apis: frozenset[str] = field(init=False)
    links: Links | None = field(init=False)
    frees: Frees | None = field(init=False)
    tries: TriesFirst | None = field(init=False)
    budget: RetryBudget = field(init=False)

    @links.default
    def _make_links(self) -> Links | None:
        return Links(self.engine, self.pools) if isinstance(self.engine, Connects) else None

    @frees.default
    def _who_frees(self) -> Frees | None:
        return self.engine if isinstance(self.engine, Frees) else None

    @tries.default
    def _who_tries(self) -> TriesFirst | None:
        return self.engine if isinstance(self.engine, TriesFirst) else None

    @apis.default
    def _ask_engine(self) -> frozenset[str]:
        return apis_of(self.engine)

    @budget.default
    def _save_up(self) -> RetryBudget:
        return self.retry.budget()


@define(eq=False)
class Job:
    """A request, the service that it is for, and what all of its legs share.

    `resent` once a leg was sent again for a stale connection, which is no retry and happens once.
    """

    exchange: Exchange
    service: Service
    request: Request
    headers: Mapping[str, str]
    served: Served
    timing: Timing | None
    retries: Retries
    resent: bool = False


def begin(exchange: Exchange, service: Service) -> Job:
    """Take a request up: its handoff fields are taken out, and it asks workers for the model by their name.

    Workers that lack its API are asked over the one that a plugin has offered to translate it to.

    Raises:
        Rejection: 404, they do not have its API, and nobody translates; 400, it cannot be translated.
    """
    served = exchange[SERVED] = Served(service.model, service.engine.name, [])
    endpoint, payload = _choose_api(exchange, service)
    strip_handoffs(payload)
    name = payload.data.get("model")
    if name != service.model and not (name is None and endpoint in NAMELESS):
        payload.edit()["model"] = service.model
    stream = exchange.get(STREAM) or False
    request = Request(endpoint, payload, stream, exchange.get(CONVERSATION), exchange.get(PERFORMANCE))
    headers = headers_for_worker(exchange)
    served.request_id = headers[REQUEST_ID]
    service.budget.deposit()
    needed = service.handoffs.needed_seconds
    retries = Retries(service.model, service.retry, service.budget, exchange.get(DEADLINE), needed)
    return Job(exchange, service, request, headers, served, exchange.get(TIMING), retries)


def _choose_api(exchange: Exchange, service: Service) -> tuple[Endpoint, Payload]:
    """The endpoint over which workers are asked, and what."""
    endpoint, offer = exchange.endpoint, exchange.get(OFFER)
    if endpoint.name in service.apis:
        return endpoint, exchange[PAYLOAD]
    if offer is None or offer.endpoint.name not in service.apis:
        raise api_missing(endpoint.path)
    payload = offer.translate()
    exchange[TRANSLATED] = offer
    return offer.endpoint, payload
