"""What the YAML says of workers."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import attrs
from attrs import Attribute, field, frozen, validators

from plugins.dispatch.addresses import normal_url


def _check_weight(_instance: object, _attribute: "Attribute[Any]", value: float) -> None:
    if not 0.01 <= value <= 100:
        raise ValueError(f"a worker's weight is from 0.01 to 100, got {value!r}")


@frozen
class WorkerConfig:
    """One worker: `http://host:port`, and its part of the work beside workers whose weight is 1.

    `bootstrap_port` is where generation workers find a context worker, if it is not the engine's usual one. One that
    is `draining` gets no new requests; those that it has go on.
    """

    url: str
    weight: float = field(default=1.0, validator=_check_weight)
    bootstrap_port: int | None = field(
        default=None, validator=validators.optional([validators.ge(1), validators.lt(1 << 16)])
    )
    draining: bool = False


Workers: TypeAlias = tuple[str | WorkerConfig, ...]
"""As they are written."""


def normal_workers(workers: Workers) -> tuple[WorkerConfig, ...]:
    """Workers in their one form.

    Raises:
        ValueError: what stands for an address is none.
    """
    return tuple(map(_normal, workers))


def _normal(worker: str | WorkerConfig) -> WorkerConfig:
    if isinstance(worker, str):
        return WorkerConfig(normal_url(worker))
    url = normal_url(worker.url)
    return worker if url == worker.url else attrs.evolve(worker, url=url)


def check_workers(_instance: object, _attribute: object, value: Workers) -> None:
    """An attrs validator: there are workers, and none of them twice."""
    check_members(normal_workers(value))


def check_members(workers: Sequence[WorkerConfig]) -> None:
    """Raise `ValueError` where there is no worker, or one twice; their addresses are in their one form."""
    if not workers:
        raise ValueError("there must be at least one worker")
    refuse_twice((worker.url for worker in workers), "the worker {} is named twice")


def refuse_twice(values: Iterator[str], message: str) -> None:
    """Raise `ValueError` with `message` about the first value that stands twice."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(message.format(value))
        seen.add(value)
