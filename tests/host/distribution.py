"""A third party's plugin, and a pool, for tests of the command line."""

THIRD_PARTY = '''
import sys

from attrs import frozen

from kernel import PluginSpec


@frozen
class Gate:
    """Refuse [bold]nothing[/bold].

    It only counts.
    """

    header: str = "x-gate"
    limit: int | None = None

    async def __call__(self, exchange, call_next):
        return await call_next(exchange)


PLUGIN = PluginSpec("gate", Gate, after="template_guard")
'''

POOL = "dispatch: {config: {pools: [{model: m, workers: ['http://127.0.0.1:9']}]}}"
