"""The story of a third party's discovery, from pip to a request that a worker of its finding serves."""

import sys
from typing import Any

import pytest

from plugins.dispatch.config import ModelConfig
from plugins.dispatch.extensions import load_discovery
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, running
from tests.third_party.support import Site


def write(site: Site, discovery: str) -> None:
    """A configuration with one pool whose workers are found."""
    site.file.write_text(f"plugins:\n  dispatch: {{config: {{pools: [{{model: m, discovery: {discovery}}}]}}}}\n")


def test_a_discovery_is_imported_once_it_is_named(site: Site) -> None:
    """With its own configuration, whose mistakes are found with their places."""
    site.write()
    assert site.check().returncode == 0
    assert "echo_discovery" not in site.imported()
    write(site, "{type: ports, host: localhost, first: 9, cuont: 2}")
    checked = site.check()
    assert checked.returncode == 2
    assert "pools[0].discovery.cuont: unknown key 'cuont', did you mean 'count'?" in checked.stderr
    write(site, "{type: ports, host: localhost, first: 9, count: 2}")
    checked = site.check()
    assert checked.returncode == 0, checked.stderr
    assert "echo_discovery" in site.imported()


@pytest.mark.anyio
async def test_a_worker_of_its_finding_serves(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the configuration names."""
    monkeypatch.syspath_prepend(site.folder)
    monkeypatch.delitem(sys.modules, "echo_discovery", raising=False)
    async with scripted(answer_ok) as worker:
        port = int(worker.url.rpartition(":")[2])
        kind: Any = load_discovery("ports")
        model = ModelConfig("m", discovery=kind("127.0.0.1", first=port))
        async with running(model) as dispatch:
            answer = await ask(dispatch, exchange_of(body_of()))
    assert answer.json == {"ok": True}
