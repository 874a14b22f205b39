"""What standard plugins leave in an exchange for each other and for third parties."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from attrs import define, field, frozen

from kernel import Endpoint, Rejection, Slot


class InvalidRequest(Rejection):
    """A body that is not a valid request of its API; counted as a validation exception."""


class WorkerRejection(Rejection):
    """A worker answered with an error; its status and message are kept, its address is not."""


@define(eq=False)
class Payload:
    """A request body: `raw` as it came, `data` as parsed, `edited` once a plugin changed `data`.

    `derived` are the arguments of the chat template that a translation made of other fields, by name, in order.
    """

    raw: bytes
    data: dict[str, Any]
    edited: bool = False
    derived: tuple[str, ...] = ()

    def edit(self) -> dict[str, Any]:
        """The data, to be changed; from now on it is sent in place of the raw bytes."""
        self.edited = True
        return self.data

    def encode(self) -> bytes:
        """The bytes to send: the client's own unless a plugin edited them.

        Raises:
            Rejection: 400, the client's JSON is nested more deeply than it can be written again.
        """
        if not self.edited:
            return self.raw
        try:
            return orjson.dumps(self.data)
        except orjson.JSONEncodeError:
            try:
                orjson.dumps(orjson.loads(self.raw))
            except orjson.JSONEncodeError:
                raise Rejection(400, "the request body is nested too deeply", "invalid_body") from None
            raise  # a plugin put in what is no JSON


@frozen(eq=False)
class Translation:
    """An offer to ask workers that do not have an API over another one, which they have.

    `endpoint` is the API that they are asked over, and `translate` gives the payload for it; dispatch calls it at
    most once, and only for workers that need it.

    Raises:
        InvalidRequest: `translate` says what cannot be said over the other API, and why.
    """

    endpoint: Endpoint
    translate: Callable[[], Payload]


@frozen
class Conversation:
    """Which conversation a request belongs to, and where that was found (a header's or field's name)."""

    id: str
    source: str
    subagent_affinity: str | None = None


@define(eq=False)
class Timing:
    """When a request passed its stations, readings of `time.monotonic()` in seconds; None while it has not.

    `dispatched`: the first leg was sent. `answered`: the last leg's first bytes came in. `finished`: the
    last byte went out.
    """

    arrived: float
    dispatched: float | None = None
    answered: float | None = None
    finished: float | None = None


@define(eq=False)
class LegTimes:
    """What is known of the leg of one role: its worker, when it was sent, and what the worker itself told of it.

    `told` are headers as the worker wrote them, with times by its own clock, which is `clock_ahead` seconds ahead of
    `time.monotonic()` here. `request_id` is the worker's.
    """

    worker: str
    sent: float
    told: Mapping[str, str] = field(factory=dict)
    clock_ahead: float = 0.0
    request_id: int | str | None = None


@define(eq=False)
class Performance:
    """Left by a plugin that wants to know how long each part of a request took; dispatch fills it in.

    `legs` are those of the last attempt, by role: `context` and `generation`. `first_token` is a reading of
    `time.monotonic()`, `handoff_id` the id under which the KV cache was handed over. `record` is what came of it all
    once the request was answered well.
    """

    legs: dict[str, LegTimes] = field(factory=dict)
    first_token: float | None = None
    handoff_id: int | str | None = None
    record: Mapping[str, Any] | None = None


@define(eq=False)
class Served:
    """Who served a request: `model` is a configured name (a safe label), `workers` are for the log alone.

    `request_id` is the one that workers were told.
    """

    model: str
    engine: str
    workers: list[str]
    attempts: int = 0
    request_id: str | None = None


PAYLOAD: Final = Slot[Payload]("payload")
MODEL: Final = Slot[str]("model")
STREAM: Final = Slot[bool]("stream")
BODY_SECONDS: Final = Slot[float]("body_seconds")
"""How long the client took to send its body."""
OFFER: Final = Slot[Translation]("offer")
"""Left by a plugin that can translate this request; dispatch decides whether its workers need it."""
TRANSLATED: Final = Slot[Translation]("translated")
"""The offer that dispatch took: the reply speaks the API of its endpoint, until a plugin translates it back."""
CONVERSATION: Final = Slot[Conversation]("conversation")
TIMING: Final = Slot[Timing]("timing")
PERFORMANCE: Final = Slot[Performance]("performance")
SERVED: Final = Slot[Served]("served")
DEADLINE: Final = Slot[float]("deadline")
"""When the answer has to be complete, a reading of `time.monotonic()` in seconds."""
TRACE: Final = Slot[tuple[tuple[str, str], ...]]("trace")
"""The trace context to send to workers, as headers; without it the client's own is passed on."""
