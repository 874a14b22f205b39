"""Broken plugins before the first request: one clear error at start, a refusal at reload, nothing when not named."""

import sys

import pytest

from kernel import DiscoveryError, OrderError
from tests.kernel.support import Shelf
from tests.zoo.habitat import Habitat, assert_serves, problem_of

pytestmark = pytest.mark.anyio

WHERE = "the-animal 1.0, entry point [kernel.plugins: animal = tests.zoo.broken.{}]: {}"
FIELD = "kernel.yaml:1: plugins.animal.config"

PACKAGES = [
    ("raises_on_import:PLUGIN", "RuntimeError: the license server is down"),
    ("exits_on_import:PLUGIN", "SystemExit: run me from the command line"),
    ("needs_what_is_missing:PLUGIN", "ModuleNotFoundError: No module named 'a_library_that_nobody_has'"),
    ("no_such_module:PLUGIN", "ModuleNotFoundError: No module named 'tests.zoo.broken.no_such_module'"),
    ("specs:MISSING", "AttributeError: module 'tests.zoo.broken.specs' has no attribute 'MISSING'"),
    ("specs:NOT_A_SPEC", "expected a PluginSpec, got type"),
    ("specs:WRONG_NAME", "the spec is named 'something_else', not 'animal'"),
    ("specs:SYNCHRONOUS", "Synchronous.__call__ is not an async function"),
    ("specs:NOT_ATTRS", "the plugin is not an attrs class"),
]
ORDERS = [
    ("specs:NO_ANCHOR", "plugin 'animal' names no anchor: give before or after, with a standard plugin's name"),
    ("specs:TWO_ANCHORS", "plugin 'animal' names two anchors, before 'sse_guard' and after 'template_guard': give one"),
    ("specs:UNFILLED_NEED", "animal needs 'tenant', which nothing outside it fills"),
    ("specs:NEED_FROM_FURTHER_IN", "animal needs 'conversation', which nothing outside it fills"),
]
CONFIGURATIONS = [
    ("configurations:UNSTRUCTURABLE", "{}", "missing required key 'connection'"),
    ("configurations:UNSTRUCTURABLE", "{connection: x}", "expected socket, got 'x'"),
    ("configurations:WANTS_FUNCTION", "{score: len}", "got 'len'"),
    ("configurations:MISSPELT", "{limit: 1}", "Integer"),
    ("configurations:BAD_VALIDATOR", "{}", "KeyError: 'validator'"),
    ("configurations:BAD_VALIDATOR", "{limit: 2}", "KeyError: 'validator'"),
    ("configurations:BAD_INIT", "{}", "ZeroDivisionError: in the plugin's own init"),
]


@pytest.mark.parametrize(("animal", "cause"), PACKAGES)
async def test_a_broken_package_is_one_error(shelf: Shelf, animal: str, cause: str) -> None:
    """That names package, version, entry point and cause."""
    assert await problem_of(Habitat(shelf, animal)) == WHERE.format(animal, cause)


@pytest.mark.parametrize("text", ["", "plugins: {animal: {enabled: false}}"])
@pytest.mark.parametrize(("animal", "cause"), PACKAGES)
async def test_a_broken_package_that_is_not_on_is_not_imported(
    shelf: Shelf, animal: str, cause: str, text: str
) -> None:
    """Neither one that the file does not name, nor one that it switches off."""
    module = f"tests.zoo.broken.{animal.partition(':')[0]}"
    sys.modules.pop(module, None)
    runtime = Habitat(shelf, animal, text).runtime()
    await runtime.start()
    await assert_serves(runtime)
    assert module not in sys.modules


@pytest.mark.parametrize(("animal", "problem"), ORDERS)
async def test_a_plugin_without_a_place_is_one_error(shelf: Shelf, animal: str, problem: str) -> None:
    """The order's own."""
    found = await problem_of(Habitat(shelf, animal), OrderError)
    assert found.partition(";")[0] == problem


@pytest.mark.parametrize(("animal", "config", "cause"), CONFIGURATIONS)
async def test_a_broken_configuration_class_is_one_error(shelf: Shelf, animal: str, config: str, cause: str) -> None:
    """At the line of the file, whatever the class raises."""
    problem = await problem_of(Habitat(shelf, animal, f"plugins: {{animal: {{config: {config}}}}}"))
    assert problem.startswith(FIELD)
    assert cause in problem


async def test_a_name_that_is_taken_is_an_error(shelf: Shelf) -> None:
    """Both distributions are named."""
    habitat = Habitat(shelf, "specs:HARMLESS")
    shelf.install("the-copy", {"animal": "tests.zoo.broken.specs:NO_ANCHOR"})
    with pytest.raises(DiscoveryError) as caught:
        await habitat.runtime().start()
    (problem,) = caught.value.problems
    assert problem.startswith("kernel.plugins: 'animal' is offered by ")
    assert "the-animal" in problem
    assert "the-copy" in problem


async def test_a_plugin_that_cannot_be_compared_is_an_error_at_reload(shelf: Shelf) -> None:
    """The old chain runs on."""
    habitat = Habitat(shelf, "configurations:BAD_EQUALITY")
    runtime = habitat.runtime()
    await runtime.start()
    problems = await runtime.reload()
    assert problems == () or "no comparing me" in problems[0]
    await assert_serves(runtime)
