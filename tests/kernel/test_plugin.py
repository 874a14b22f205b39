"""The spec of a plugin: what it takes, and that a slip in it is found where it is made."""

from typing import Any

import pytest
from attrs import frozen

from kernel import CallNext, Exchange, HasLifecycle, HasReadiness, HasSuccession, PluginSpec, Reply, Slot
from tests.kernel.parts import Answer, Heir, Left

DATA = Slot[str]("data")


@frozen
class Fine:
    """A plugin."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


@pytest.mark.parametrize("name", ["gate", "tenant_gate", "gate2"])
def test_a_name_is_lower_case_words(name: str) -> None:
    """Joined by underscores."""
    assert PluginSpec(name, Fine).name == name


@pytest.mark.parametrize("name", ["", "Gate", "tenant-gate", "tenant gate", "2gate", "g\u00e4te", "gate\n", None, 1])
def test_any_other_name_is_refused(name: Any) -> None:
    """It is a key in YAML, an entry point and a label."""
    with pytest.raises(ValueError, match="a plugin's name is lower-case words joined by underscores"):
        PluginSpec(name, Fine)


def test_a_spec_keeps_what_it_was_given() -> None:
    """Anchors and slots are given by name."""
    spec = PluginSpec("gate", Fine, before="outer", needs=(DATA,), fills=(DATA,), fail_open=True)
    assert (spec.before, spec.after, spec.needs, spec.fills, spec.fail_open) == ("outer", None, (DATA,), (DATA,), True)
    with pytest.raises(TypeError):
        PluginSpec("gate", Fine, "outer")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "wrong", [{"needs": DATA}, {"fills": DATA}, {"needs": ("data",)}, {"before": Fine}, {"after": 1}]
)
def test_a_slip_in_a_spec_is_found_when_it_is_made(wrong: dict[str, Any]) -> None:
    """A forgotten comma, a name for a slot, a class for a name: the package is at fault, not the whole chain."""
    with pytest.raises((TypeError, ValueError)):
        PluginSpec("gate", Fine, **wrong)


def test_what_a_plugin_offers_is_seen_from_its_methods() -> None:
    """No base class is needed."""
    assert isinstance(Left(), HasLifecycle)
    assert isinstance(Left(), HasReadiness)
    assert not isinstance(Left(), HasSuccession)
    assert isinstance(Heir(), HasSuccession)
    assert not isinstance(Answer(), HasLifecycle | HasReadiness | HasSuccession)
