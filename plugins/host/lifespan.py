"""ASGI's lifespan as the host runs it: what went wrong at start reaches the caller as the exception that it was."""

import asyncio
from typing import Any

from uvicorn.lifespan.on import LifespanOn


class Lifespan(LifespanOn):
    """Starts and stops the application without log lines of its own."""

    error: BaseException | None = None
    _task: asyncio.Task[None] | None = None  # the loop itself holds tasks weakly

    async def startup(self) -> None:
        """Start the application, once.

        Raises:
            BaseException: whatever the application raised instead of starting.
        """
        if self.startup_event.is_set():
            return
        self._task = asyncio.get_running_loop().create_task(self.main())
        await self.receive_queue.put({"type": "lifespan.startup"})
        await self.startup_event.wait()
        self.should_exit = self.startup_failed or self.error_occurred
        if self.should_exit:
            raise self.error or RuntimeError("the application did not start")

    async def main(self) -> None:
        """Run the application's lifespan to its end."""
        scope: Any = {
            "type": "lifespan",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self.config.loaded_app(scope, self.receive, self.send)
        except BaseException as error:
            self.error = error
            self.error_occurred = True
        finally:
            self.startup_event.set()
            self.shutdown_event.set()

    async def send(self, message: Any) -> None:
        """Take the application's word; its traceback is in the exception already."""
        if message["type"].endswith(".failed"):
            message = {"type": message["type"]}
        await super().send(message)
