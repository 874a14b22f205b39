"""The story of a third party's engine, from pip to a relay over two workers."""

import sys

import orjson
import pytest

from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.extensions import load_engine
from tests.dispatch.scripted import Seen, scripted
from tests.dispatch.support import ask, body_of, exchange_of, running
from tests.third_party.support import Site

POOL = (
    '{model: m, engine: %s, context: {workers: ["http://127.0.0.1:9"]}, generation: {workers: ["http://127.0.0.1:8"]}}'
)


def write(site: Site, engine: str) -> None:
    """A configuration with one pool of this engine."""
    site.file.write_text(f"plugins:\n  dispatch: {{config: {{pools: [{POOL % engine}]}}}}\n")


def test_an_engine_is_imported_once_it_is_named(site: Site) -> None:
    """Not before, and with its own configuration."""
    site.write()
    assert site.check().returncode == 0
    assert "echo_engine" not in site.imported()
    write(site, "{type: echo, field: pass}")
    checked = site.check()
    assert checked.returncode == 0, checked.stderr
    assert "echo_engine" in site.imported()


def test_a_mistake_in_its_configuration_is_found_with_its_place(site: Site) -> None:
    """As in that of a standard one."""
    write(site, "{type: echo, feild: pass}")
    checked = site.check()
    assert checked.returncode == 2
    assert "engine.feild: unknown key 'feild', did you mean 'field'?" in checked.stderr


@pytest.mark.anyio
async def test_it_relays_between_two_workers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket of the one reaches the other."""

    async def context(seen: Seen) -> None:
        await seen.answer(b'{"ticket":"t-1"}')

    async def generation(seen: Seen) -> None:
        await seen.answer(b'{"got":%s}' % seen.body)

    monkeypatch.syspath_prepend(site.folder)
    monkeypatch.delitem(sys.modules, "echo_engine", raising=False)
    engine = load_engine("echo")()
    async with scripted(context) as first, scripted(generation) as second:
        model = ModelConfig("m", engine=engine, context=RoleConfig((first.url,)), generation=RoleConfig((second.url,)))
        async with running(model) as dispatch:
            answer = await ask(dispatch, exchange_of(body_of()))
    assert answer.json["got"]["ticket"] == "t-1"
    assert answer.json["got"]["role"] == "generation"
    assert orjson.loads(first.seen[0].body)["role"] == "context"
