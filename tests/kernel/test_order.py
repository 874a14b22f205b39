"""The order: what `resolve` makes of a standard order, specs and switches."""

from itertools import permutations

from attrs import frozen

from kernel import (
    CallNext,
    Exchange,
    OrderLine,
    Place,
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


def names(places: tuple[Place, ...]) -> list[str]:
    """The names of the places."""
    return [place.name for place in places]


def test_the_standard_order_is_kept() -> None:
    """With reasons, all on by default."""
    places = resolve(ORDER, specs_of(), {})
    assert [(place.name, place.reason, place.on, place.by) for place in places] == [
        ("outer", "first", True, "default"),
        ("middle", "second", True, "default"),
        ("inner", "last", True, "default"),
    ]


def test_a_third_party_stands_next_to_its_anchor() -> None:
    """On the side that it names, on because the file names it."""
    gate = PluginSpec("gate", Nothing, after="outer")
    places = resolve(ORDER, specs_of(gate), {"gate": Switch()})
    assert names(places) == ["outer", "gate", "middle", "inner"]
    assert places[1] == Place("gate", "after outer", True, "file", gate)


def test_several_at_one_anchor_and_side_sort_by_name() -> None:
    """Whatever the order in which they were found."""
    gates = [PluginSpec(name, Nothing, before="middle") for name in ("c", "a", "b")]
    for found in permutations(gates):
        assert names(resolve(ORDER, specs_of(*found), {})) == ["outer", "a", "b", "c", "middle", "inner"]


def test_after_one_plugin_comes_before_before_the_next() -> None:
    """Both stand between the two; the anchor decides, not the name."""
    after, before = PluginSpec("z", Nothing, after="outer"), PluginSpec("a", Nothing, before="middle")
    assert names(resolve(ORDER, specs_of(after, before), {})) == ["outer", "z", "a", "middle", "inner"]


def test_the_file_moves_a_third_party() -> None:
    """Its anchor and side replace those of the spec, whichever that has."""
    gate = PluginSpec("gate", Nothing, after="outer")
    moved = resolve(ORDER, specs_of(gate), {"gate": Switch(before="inner")})
    assert names(moved) == ["outer", "middle", "gate", "inner"]
    assert moved[2].reason == "before inner"


def test_switching_one_off_moves_no_other() -> None:
    """It keeps its place, without a spec when it was not imported."""
    gate = PluginSpec("gate", Nothing, after="middle")
    specs = specs_of(gate)
    all_on = resolve(ORDER, specs, {})
    del specs["middle"]
    without = resolve(ORDER, specs, {"middle": Switch(enabled=False)})
    assert names(without) == names(all_on)
    assert [place for place in without if not place.on] == [Place("middle", "second", False, "file", None)]


def test_a_standard_plugin_that_the_file_switches_on_is_on_by_the_file() -> None:
    """The print says who decided."""
    assert resolve(ORDER, specs_of(), {"middle": Switch(enabled=True)})[1].by == "file"


def test_needs_are_met_from_outside() -> None:
    """By any plugin that is on and further out, a third party as well."""
    fills = PluginSpec("filler", Nothing, before="outer", fills=(DATA,))
    needs = PluginSpec("inner", Nothing, needs=(DATA,))
    assert names(resolve(ORDER, specs_of(fills, inner=needs), {}))[0] == "filler"
