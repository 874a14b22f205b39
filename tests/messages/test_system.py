"""What becomes of the system prompt, and of system turns among the others."""

import pytest

from tests.messages.bodies import asked, refusal, request, text, turns

BILLING = "x-anthropic-billing-header: cc_version=2.1.332.1c9; cc_entrypoint=sdk-cli;"


@pytest.mark.parametrize("system", ["be brief", [text("be brief")], [text(""), text("be brief")]])
def test_the_system_prompt_is_the_first_message(system: object) -> None:
    """A string or blocks."""
    assert asked(request(system=system))[0] == {"role": "system", "content": "be brief"}


def test_blocks_and_leading_system_turns_are_one_message() -> None:
    """Joined by blank lines, as templates take one system message and only at the start."""
    data = turns(("system", "b"), ("system", [text("c")]), ("user", "q"), system=[text("a")])
    assert asked(data) == [{"role": "system", "content": "a\n\nb\n\nc"}, {"role": "user", "content": "q"}]


def test_a_later_system_turn_keeps_its_place() -> None:
    """Claude Code puts one behind the first turn of the user."""
    assert asked(turns(("user", "q"), ("system", [text("a"), text("b")])))[1] == {"role": "system", "content": "a\n\nb"}


@pytest.mark.parametrize(
    "system",
    [
        [text(BILLING), text("be brief")],
        [text(BILLING.replace("1c9", "2d0")), text("be brief")],
        [text(f"{BILLING}\nbe brief")],
        f"{BILLING}\n\nbe brief",
    ],
)
def test_a_billing_line_is_left_out(system: object) -> None:
    """It changes every turn, and the prompt's beginning must not."""
    assert asked(request(system=system)) == asked(request(system="be brief"))


def test_a_request_with_a_billing_line_alone_has_no_system_message() -> None:
    """Nothing is left of it."""
    assert asked(request(system=[text(BILLING)])) == asked(request())


@pytest.mark.parametrize("kept", ["x-anthropic-billing-header: free text", f"be brief\n{BILLING}", f" {BILLING}"])
def test_what_only_looks_like_a_billing_line_stays(kept: str) -> None:
    """As the client may talk about one."""
    assert asked(request(system=kept))[0]["content"] == kept
    assert asked(request(system=[text("a"), text(BILLING)]))[0]["content"] == f"a\n\n{BILLING}"


@pytest.mark.parametrize("system", [1, [1], [{"type": "image"}], [{"type": "text"}]])
def test_a_system_prompt_that_is_no_text_is_refused(system: object) -> None:
    """With its place."""
    assert refusal(request(system=system)).startswith("system")
