"""The tree of errors."""

import pytest

from kernel import ChainError, ClientGone, ConfigError, DiscoveryError, KernelError, OrderError, Rejection


@pytest.mark.parametrize("kind", [ChainError, ClientGone, ConfigError, Rejection])
def test_there_is_one_tree(kind: type[Exception]) -> None:
    """Whoever catches KernelError catches what the kernel raises on purpose."""
    assert issubclass(kind, KernelError)
    assert issubclass(OrderError, ConfigError)
    assert issubclass(DiscoveryError, ConfigError)


@pytest.mark.parametrize("status", [400, 404, 499, 503, 599])
def test_a_rejection_has_a_status_of_an_error(status: int) -> None:
    """From 400 to 599."""
    assert Rejection(status, "no").status == status


@pytest.mark.parametrize("status", [0, 200, 302, 399, 600, -400])
def test_a_rejection_cannot_be_a_success(status: int) -> None:
    """Whoever tries is told at once."""
    with pytest.raises(ValueError, match=f"a rejection needs a status from 400 to 599, got {status}"):
        Rejection(status, "no")


def test_a_rejection_carries_what_an_envelope_needs() -> None:
    """Headers are kept as they were, whatever iterable they came in."""
    rejection = Rejection(429, "later", "slow_down", iter([("retry-after", "1")]), kind="rate", param="model")
    assert (rejection.message, rejection.code, rejection.kind, rejection.param) == (
        "later",
        "slow_down",
        "rate",
        "model",
    )
    assert rejection.headers == (("retry-after", "1"),)
    assert str(rejection) == "later"


def test_a_configuration_error_lists_its_problems() -> None:
    """One on each line; a single text is one problem."""
    assert ConfigError("one").problems == ("one",)
    error = ConfigError(problem for problem in ("one", "two"))
    assert error.problems == ("one", "two")
    assert str(error) == "one\ntwo"


def test_a_chain_error_names_its_plugin() -> None:
    """In its text and as a value."""
    error = ChainError("gate", "called call_next twice")
    assert str(error) == "plugin 'gate' called call_next twice"
    assert error.plugin == "gate"
