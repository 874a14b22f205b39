"""Orders that cannot be: each way to get it wrong has its message."""

from collections.abc import Mapping

import pytest
from attrs import frozen

from kernel import (
    CallNext,
    Exchange,
    OrderError,
    OrderLine,
    PluginSpec,
    Reply,
    Slot,
    Switch,
    resolve,
)

ORDER = (OrderLine("outer", "first"), OrderLine("middle", "second"), OrderLine("inner", "last", required=True))


DATA = Slot[str]("data")


@frozen
class Nothing:
    """A plugin."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


def specs_of(*third_parties: PluginSpec, **standard: PluginSpec) -> dict[str, PluginSpec]:
    """What is installed."""
    specs = {line.name: PluginSpec(line.name, Nothing) for line in ORDER}
    return {**specs, **standard, **{spec.name: spec for spec in third_parties}}


def problems(specs: Mapping[str, PluginSpec], **switches: Switch) -> tuple[str, ...]:
    """The problems of an order."""
    with pytest.raises(OrderError) as caught:
        resolve(ORDER, specs, switches)
    return caught.value.problems


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_need_that_is_filled_further_in_is_not_met(side: str) -> None:
    """The error says who fills it; a plugin does not fill its own need."""
    before, after = ("middle", None) if side == "before" else (None, "middle")
    needs = PluginSpec("gate", Nothing, before=before, after=after, needs=(DATA,))
    fills = PluginSpec("inner", Nothing, fills=(DATA,))
    assert problems(specs_of(needs, inner=fills)) == (
        "gate needs 'data', which nothing outside it fills; 'inner' fills it further in",
    )
    both = PluginSpec("middle", Nothing, needs=(DATA,), fills=(DATA,))
    assert len(problems(specs_of(middle=both))) == 1


def test_a_need_that_only_a_plugin_that_is_off_would_fill_is_not_met() -> None:
    """Needs are checked on what remains."""
    specs = specs_of(
        middle=PluginSpec("middle", Nothing, fills=(DATA,)), inner=PluginSpec("inner", Nothing, needs=(DATA,))
    )
    resolve(ORDER, specs, {})
    del specs["middle"]
    assert problems(specs, middle=Switch(enabled=False)) == ("inner needs 'data', which nothing outside it fills",)


def test_slots_are_told_apart_by_identity() -> None:
    """Two slots of one name are two slots."""
    specs = specs_of(
        outer=PluginSpec("outer", Nothing, fills=(Slot[str]("data"),)),
        inner=PluginSpec("inner", Nothing, needs=(DATA,)),
    )
    assert problems(specs) == ("inner needs 'data', which nothing outside it fills",)


@pytest.mark.parametrize(
    ("gate", "problem"),
    [
        (PluginSpec("gate", Nothing), "names no anchor: give before or after, with a standard plugin's name"),
        (
            PluginSpec("gate", Nothing, before="inner", after="outer"),
            "names two anchors, before 'inner' and after 'outer': give one",
        ),
        (
            PluginSpec("gate", Nothing, after="midle"),
            "is anchored to 'midle', which does not exist, did you mean 'middle'?",
        ),
        (PluginSpec("gate", Nothing, after="xyz"), "is anchored to 'xyz', which does not exist"),
        (PluginSpec("gate", Nothing, after="gate"), "is anchored to 'gate', which is not a standard plugin"),
        (PluginSpec("gate", Nothing, after=""), "is anchored to '', which does not exist"),
    ],
)
def test_an_anchor_is_exactly_one_standard_plugin(gate: PluginSpec, problem: str) -> None:
    """Each way to get it wrong has its message."""
    assert problems(specs_of(gate)) == (f"plugin 'gate' {problem}",)


def test_a_third_party_is_no_anchor() -> None:
    """Not even a well-placed one."""
    one, other = PluginSpec("one", Nothing, after="outer"), PluginSpec("other", Nothing, after="one")
    assert problems(specs_of(one, other)) == ("plugin 'other' is anchored to 'one', which is not a standard plugin",)


def test_a_standard_plugin_stays_where_it_is() -> None:
    """Neither the file nor its own spec moves it."""
    assert problems(specs_of(), middle=Switch(before="outer")) == (
        "plugin 'middle' is a standard one and cannot be moved",
    )
    anchored = PluginSpec("middle", Nothing, after="outer")
    assert problems(specs_of(middle=anchored)) == ("plugin 'middle' is a standard one: it takes no anchor",)


def test_a_required_plugin_stays_on() -> None:
    """And one that is not installed is missed, unless it is off."""
    assert problems(specs_of(), inner=Switch(enabled=False)) == (
        "plugin 'inner' is required and cannot be switched off",
    )
    specs = specs_of()
    del specs["outer"]
    assert problems(specs) == ("plugin 'outer' of the standard order is not installed",)


def test_a_standard_order_that_repeats_a_name_is_refused() -> None:
    """A typing error in the one list that is the truth."""
    with pytest.raises(OrderError, match="the standard order names 'outer' twice"):
        resolve((*ORDER, ORDER[0]), specs_of(), {})


def test_every_problem_is_reported_at_once() -> None:
    """Of anchors and switches; needs are looked at when there is an order."""
    found = problems(
        specs_of(PluginSpec("a", Nothing), PluginSpec("b", Nothing, after="xyz")),
        inner=Switch(enabled=False),
        middle=Switch(after="outer"),
    )
    assert len(found) == 4
