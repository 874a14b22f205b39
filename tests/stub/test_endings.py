"""A stub's request that ends while it waits leaves nothing for the event loop to complain of."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.dispatch.embedded.stub.call import Call

pytestmark = pytest.mark.anyio


async def test_what_fails_as_its_request_ends_is_nobodys_loss() -> None:
    """The client leaves in the moment in which the other half of a pair turns out to be gone."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    call: Any = SimpleNamespace(stopped=asyncio.Event())

    async def fail() -> None:
        working = asyncio.current_task()
        assert working is not None
        working.add_done_callback(lambda _: waiting.cancel())
        raise RuntimeError("gone")

    waiting = asyncio.ensure_future(Call.unless_stopped(call, fail()))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.shield(waiting)
    gc.collect()
    await asyncio.sleep(0)
    asyncio.get_running_loop().set_exception_handler(None)
    assert complaints == []
