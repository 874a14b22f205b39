"""Discovery: entry points are found without an import, and whatever is broken is one clear error."""

import pytest
from attrs import frozen

from kernel import (
    CallNext,
    DiscoveryError,
    Exchange,
    Extension,
    Reply,
    find_extension,
    find_extensions,
)
from kernel.discovery import suggest
from tests.kernel.support import Shelf

GROUP = "kernel.plugins"


@frozen
class Fine:
    """A plugin."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


def find(shelf: Shelf, value: str, name: str = "gate") -> Extension:
    """Offer an entry point and find it."""
    shelf.install("some-gate", {name: value})
    return find_extensions(GROUP)[name]


def test_an_entry_point_is_found_with_its_distribution(shelf: Shelf) -> None:
    """By name; nothing is imported for it."""
    extension = find(shelf, "tests.kernel.no_such_module:PLUGIN")
    assert (extension.name, extension.distribution, extension.version) == ("gate", "some-gate", "1.0")


def test_groups_are_apart(shelf: Shelf) -> None:
    """An engine is no plugin."""
    shelf.install("some-engine", {"gate": "x:ENGINE"}, group="kernel.engines")
    assert "gate" not in find_extensions(GROUP)
    assert find_extensions("kernel.engines")["gate"].entry.value == "x:ENGINE"
    assert find_extensions("kernel.nothing") == {}


def test_a_name_that_two_distributions_offer_is_an_error(shelf: Shelf) -> None:
    """Which one would win is nobody's business to guess; all such names are reported."""
    for distribution in ("first", "second"):
        shelf.install(distribution, {"one": f"{distribution}:ONE", "two": f"{distribution}:TWO"})
    with pytest.raises(DiscoveryError) as caught:
        find_extensions(GROUP)
    assert len(caught.value.problems) == 2
    assert all("first" in problem and "second" in problem for problem in caught.value.problems)
    assert {problem.partition(" is ")[0] for problem in caught.value.problems} == {
        "kernel.plugins: 'one'",
        "kernel.plugins: 'two'",
    }


def test_a_third_party_cannot_replace_a_standard_plugin(shelf: Shelf) -> None:
    """It would be a second offer of the name."""
    shelf.install("thief", {"error_envelope": "thief:PLUGIN"})
    with pytest.raises(DiscoveryError, match=r"'error_envelope' is offered by .*thief"):
        find_extensions(GROUP)


def test_a_distribution_that_is_found_twice_is_one(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when it is installed in two folders of the path."""
    shelf.install("some-gate", {"gate": "some_gate:PLUGIN"})
    second = Shelf(shelf.folder / "nested")
    second.install("some-gate", {"gate": "some_gate:PLUGIN"})
    monkeypatch.syspath_prepend(second.folder)
    assert find_extensions(GROUP)["gate"].distribution == "some-gate"


def test_asking_for_what_is_not_there_names_the_nearest(shelf: Shelf) -> None:
    """Or all that there is."""
    shelf.install("policies", {"round_robin": "x:A", "least_loaded": "x:B"}, group="test.policies")
    assert find_extension("test.policies", "round_robin").entry.value == "x:A"
    with pytest.raises(DiscoveryError, match=r"nothing installed offers test\.policies 'round_robbin', did you mean"):
        find_extension("test.policies", "round_robbin")
    with pytest.raises(DiscoveryError, match="'zzz'; there is least_loaded, round_robin"):
        find_extension("test.policies", "zzz")
    with pytest.raises(DiscoveryError, match="; there is none"):
        find_extension("test.nothing", "zzz")


def test_a_suggestion_is_the_nearest_or_the_list() -> None:
    """Sorted."""
    assert suggest("lef", ["right", "left"]) == ", did you mean 'left'?"
    assert suggest("zzz", ["right", "left"]) == "; there is left, right"
