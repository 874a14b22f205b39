"""One request on its way through its plan."""

from collections.abc import Mapping

from attrs import define, field

from kernel import Endpoint, Exchange
from plugins.dispatch.engine import Request
from plugins.dispatch.forgeries import strip_handoffs
from plugins.dispatch.headers import REQUEST_ID, headers_for_worker
from plugins.dispatch.rejections import api_missing
from plugins.dispatch.retry import Retries
from plugins.dispatch.service import Service
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
    deadline: float | None
    resent: bool = False
    _retries: Retries | None = field(default=None, init=False)

    @property
    def retries(self) -> Retries:
        """What decides on further attempts, once the first one failed."""
        if self._retries is None:
            service = self.service
            needed = service.handoffs.needed_seconds
            self._retries = Retries(service.model, service.retry, service.budget, self.deadline, needed)
        return self._retries


def begin(exchange: Exchange, service: Service) -> Job:
    """Take a request up: its handoff fields are taken out, and it asks workers for the model by their name.

    Workers that lack its API are asked over the one that a plugin has offered to translate it to.

    Raises:
        Rejection: 404, they do not have its API, and nobody translates; 400, it cannot be translated.
    """
    served = exchange[SERVED] = Served(service.model, service.engine.name, [])
    endpoint, slot = exchange.endpoint, exchange.get
    if endpoint.name in service.apis:
        payload = exchange[PAYLOAD]
    else:
        endpoint, payload = _translate(exchange, service)
    strip_handoffs(payload)
    name = payload.data.get("model")
    if name != service.model and not (name is None and endpoint in NAMELESS):
        payload.edit()["model"] = service.model
    request = Request(endpoint, payload, slot(STREAM) or False, slot(CONVERSATION), slot(PERFORMANCE))
    headers = headers_for_worker(exchange)
    served.request_id = headers[REQUEST_ID]
    service.budget.deposit()
    return Job(exchange, service, request, headers, served, slot(TIMING), slot(DEADLINE))


def _translate(exchange: Exchange, service: Service) -> tuple[Endpoint, Payload]:
    """The endpoint over which workers are asked that lack the client's, and what they are asked over it."""
    offer = exchange.get(OFFER)
    if offer is None or offer.endpoint.name not in service.apis:
        raise api_missing(exchange.endpoint.path)
    payload = offer.translate()
    exchange[TRANSLATED] = offer
    return offer.endpoint, payload
