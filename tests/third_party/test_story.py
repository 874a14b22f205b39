"""The story of a third party's plugin, from pip to the chain."""

import json
import sys
from pathlib import Path

import pytest

from kernel import KernelMiddleware
from tests.kernel.support import Request, Shelf
from tests.third_party.support import Site
from tests.zoo.habitat import Habitat, nowhere

BROKEN = (
    "broken-gate 2.1, entry point [kernel.plugins: broken_gate = broken_gate:PLUGIN]: RuntimeError: no license found"
)


def names(site: Site) -> list[str]:
    """The plugins that are on, outermost first."""
    return [plugin["name"] for plugin in site.chain() if plugin["on"]]


def errors(site: Site) -> str:
    """What a check finds wrong, without a traceback."""
    checked = site.check()
    assert checked.returncode == 2, checked.stderr
    assert "Traceback" not in checked.stderr + checked.stdout
    return checked.stderr


def test_what_is_installed_and_not_named_is_neither_run_nor_imported(site: Site) -> None:
    """Nor is what is named and off; the check is fine with both."""
    for lines in ((), ("tenant_gate: {enabled: false}", "broken_gate: {enabled: false}")):
        site.write(*lines)
        checked = site.check()
        assert checked.returncode == 0, checked.stderr
        assert site.imported() == set()


def test_showing_the_plugins_imports_nothing_either(site: Site) -> None:
    """Those that are installed and not on can be listed by what pip knows of them."""
    site.write()
    assert "tenant_gate" not in names(site)
    assert site.imported() == set()


def test_what_is_named_stands_at_its_place(site: Site) -> None:
    """On because of the file, with its distribution and version; its broken neighbour is not touched."""
    site.write("tenant_gate: {config: {header: x-tenant}}")
    chain = site.chain()
    running = names(site)
    assert running[running.index("template_guard") + 1] == "tenant_gate"
    (gate,) = [plugin for plugin in chain if plugin["name"] == "tenant_gate"]
    assert (gate["by"], gate["reason"]) == ("file", "after template_guard")
    assert (gate["distribution"], gate["version"]) == ("tenant-gate", "1.0")
    assert site.check().returncode == 0
    assert site.imported() == {"tenant_gate"}


def test_the_file_moves_it(site: Site) -> None:
    """To the other side of another standard plugin."""
    site.write("tenant_gate: {before: parse_request}")
    running = names(site)
    assert running[running.index("parse_request") - 1] == "tenant_gate"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("tenant_gate: {config: {header: 1}}", "plugins.tenant_gate.config.header: expected str, got 1"),
        (
            "tenant_gate: {config: {heder: x}}",
            "plugins.tenant_gate.config.heder: unknown key 'heder', did you mean 'header'?",
        ),
        ("tenant_gate: {configs: {}}", "plugins.tenant_gate.configs: unknown key 'configs', did you mean 'config'?"),
        ("tennant_gate: {}", "plugins.tennant_gate: no such plugin, did you mean 'tenant_gate'?"),
    ],
)
def test_a_mistake_in_the_file_is_found_with_its_place(site: Site, line: str, problem: str) -> None:
    """File, line, path and the nearest valid key; the exit code is 2."""
    site.write(line)
    assert f"{site.file}:3: {problem}" in errors(site)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "tenant_gate: {after: template_gard}",
            "plugin 'tenant_gate' is anchored to 'template_gard', which does not exist, did you mean 'template_guard'?",
        ),
        (
            "tenant_gate: {before: dispatch, after: template_guard}",
            "plugin 'tenant_gate' names two anchors, before 'dispatch' and after 'template_guard': give one",
        ),
    ],
)
def test_a_place_that_does_not_exist_is_an_error(site: Site, line: str, problem: str) -> None:
    """With the name that was perhaps meant."""
    site.write(line)
    assert problem in errors(site)


def test_a_broken_package_that_is_named_is_one_clear_error(site: Site) -> None:
    """With package, version, entry point and cause, next to the problems of others."""
    site.write("broken_gate: {}", "tenant_gate: {config: {heder: x}}")
    found = errors(site)
    assert found.count(BROKEN) == 1
    assert "unknown key 'heder', did you mean 'header'?" in found
    assert site.imported() >= {"broken_gate"}


@pytest.mark.anyio
async def test_it_does_its_work_in_the_chain(site: Site, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without the header is refused in the API's envelope, one with it is answered."""
    monkeypatch.syspath_prepend(site.folder)
    monkeypatch.delitem(sys.modules, "tenant_gate", raising=False)
    runtime = Habitat(shelf, text="plugins: {tenant_gate: {config: {header: x-team}}}").runtime()
    await runtime.start()
    app = KernelMiddleware(nowhere, runtime=runtime)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    refused = await Request(app, "/v1/chat/completions", body, headers=(("x-tenant", "a"),)).run()
    assert refused.status == 401
    assert json.loads(refused.text)["error"]["message"] == "missing x-team header"
    served = await Request(app, "/v1/chat/completions", body, headers=(("x-team", "a"),)).run()
    assert (served.status, json.loads(served.text)) == (200, {"answer": True})
    assert Path(sys.modules["tenant_gate"].__file__ or "").parent == site.folder
