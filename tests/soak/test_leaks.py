"""Nothing that a request makes outlives it: the objects of the whole process are counted, by their types."""

import asyncio
import gc
import logging
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import structlog

from kernel import Runtime, build_app
from plugins import STANDARD, parse_document
from plugins.host.listener import bind
from plugins.host.routes import build_routes
from plugins.host.server import KernelServer, build_config
from tests.matrix.world import start, until
from tests.soak.crowd import Crowd, Visit
from tests.soak.fleet import Fleet, run_fleet
from tests.soak.subject import configuration

REQUESTS: Final = 600
CLIENTS: Final = 12


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop that the kernel serves on."""
    return "asyncio", {"use_uvloop": True}


@asynccontextmanager
async def serving(fleet: Fleet) -> AsyncIterator[int]:
    """A kernel in this process, and its port."""
    document = parse_document(configuration(fleet), "leaks")
    runtime, listener = Runtime(STANDARD, lambda: document), bind("127.0.0.1", 0)
    config = build_config(build_app(runtime, build_routes(STANDARD.endpoints)), 5.0)
    thresholds = gc.get_threshold()
    close = await start(KernelServer(config, runtime, 5.0), listener)
    try:
        yield listener.getsockname()[1]
    finally:
        await close()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


async def rest(fleet: Fleet) -> None:
    """Let what was begun end, and forget what the workers keep of requests on purpose."""
    fleet.calm()
    await until(lambda: not any(stub.state().running or stub.state().held_blocks for stub in fleet.everyone))
    await until(lambda: not any(stub.state().connections_open for stub in fleet.everyone))
    for stub in fleet.everyone:
        stub.reset()


def census() -> tuple[Counter[str], int]:
    """The objects of each type, and the memory blocks, of this process."""
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects()), (
        sys.getallocatedblocks()
    )


@pytest.mark.anyio
async def test_no_type_of_object_grows_with_requests() -> None:
    """After as many requests again, with faults and hang-ups, there are not more of anything than before."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chance = random.Random(1)
    async with run_fleet(1) as fleet, serving(fleet) as port:

        def befall(visit: Visit) -> None:
            if chance.random() < 0.12:
                fleet.strike(visit.model)

        async def visit_all() -> tuple[Counter[str], int]:
            crowd = Crowd(port, REQUESTS, random.Random(1), befall)
            await crowd.run(CLIENTS)
            assert crowd.broken == []
            await rest(fleet)
            await asyncio.sleep(0)
            return census()

        await visit_all()
        before, blocks_before = await visit_all()
        after, blocks_after = await visit_all()
    grown = {name: count - before[name] for name, count in after.items() if count - before[name] > REQUESTS // 4}
    assert grown == {}
    assert blocks_after - blocks_before < REQUESTS  # what is no container is in no census of objects
