"""A plugin for tests whose answers can be held back, and how to install one for a test alone."""

from pathlib import Path

from kernel import Endpoint, OrderLine, Standard

ENDPOINTS = tuple(Endpoint(name, f"/{name}") for name in ("echo", "early", "hold", "stream", "flood"))

PLUGIN = '''
"""A terminal plugin whose answers a test can hold back; installed by a folder on the import path alone."""

import asyncio

from attrs import frozen

from kernel import BytesReply, ClientGone, PluginSpec, StreamReply

SEEN: list[str] = []
GONE: list[str] = []
RELEASED = asyncio.Event()


@frozen
class Terminal:
    """Answer each endpoint in its own way."""

    limit: int = 1000
    stop_forever: bool = False

    async def __call__(self, exchange, call_next):
        name = exchange.endpoint.name
        SEEN.append(name)
        match name:
            case "echo":
                return BytesReply(await exchange.read(self.limit), 200, [(b"content-type", b"application/json")])
            case "early":
                return StreamReply(self.chunks())
            case "hold":
                await exchange.read(self.limit)
                exchange.watch()
                try:
                    await RELEASED.wait()
                except asyncio.CancelledError:
                    GONE.append(name)
                    raise
                return BytesReply(b"held")
            case "flood":
                await exchange.read(self.limit)
                reply = StreamReply(self.flood())
                reply.attach(end=lambda outcome: GONE.append(outcome.name))
                return reply
        await exchange.read(self.limit)
        reply = StreamReply(self.chunks())
        ends = {"completed": "end"}
        reply.attach(close=lambda outcome: ends.get(outcome.name, f"broken: {outcome.error}").encode())
        return reply

    async def chunks(self):
        yield b"first,"
        await RELEASED.wait()
        yield b"last,"

    async def flood(self):
        while True:
            yield bytes(65536)

    async def start(self):
        RELEASED.clear()

    async def stop(self):
        if self.stop_forever:
            await asyncio.Event().wait()


PLUGIN = PluginSpec("terminal", Terminal)
'''

STANDARD = Standard(order=(OrderLine("terminal", "answers everything"),), endpoints=ENDPOINTS)


def install(folder: Path, name: str, source: str) -> None:
    """Lay out a distribution that offers the plugin `name` when `folder` is on the import path."""
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[kernel.plugins]\n{name} = {name}_plugin:PLUGIN\n")
    (folder / f"{name}_plugin.py").write_text(source)
