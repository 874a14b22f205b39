"""Plugins in parts: joined they do what each would do if it was called, and whose fault it was stays known."""

import asyncio
from typing import Any

import pytest

from kernel import BytesReply, Rejection, Reply
from tests.plugins.hooked import FAULT, Scene, fall

pytestmark = pytest.mark.anyio

OWN = BytesReply(b"own")


def decline(*_: object) -> Any:
    """Decline."""
    raise Rejection(429, "later")


def stumble(*_: object) -> Any:
    """Raise something else."""
    raise KeyError("other")


async def fall_further_in() -> Reply:
    """Raise in the innermost plugin."""
    raise FAULT


async def end_cancelled() -> Reply:
    """As a task does that is cancelled."""
    raise asyncio.CancelledError


async def answer_later() -> Reply:
    """Answer after a turn of the loop."""
    await asyncio.sleep(0)
    return OWN


async def say_nothing_later() -> None:
    """Pass on after a turn of the loop."""
    await asyncio.sleep(0)


async def fall_later() -> Reply:
    """Raise after a turn of the loop."""
    await asyncio.sleep(0)
    raise FAULT


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "all see both ways": ({}, "answer | a in, b in, c in, inner, c out, b out, a out"),
    "a request may be answered": ({"on_request": lambda: OWN}, "own | a in, b in, a out"),
    "or after a wait": ({"on_request": answer_later}, "own | a in, b in, a out"),
    "or not after all": (
        {"on_request": say_nothing_later},
        "answer | a in, b in, c in, inner, c out, b out, a out",
    ),
    "a reply may be exchanged": (
        {"on_reply": lambda _: OWN},
        "own | a in, b in, c in, inner, c out, b out, a out",
    ),
    "an error passes all": (
        {"inner": fall_further_in},
        "ValueError of inner | a in, b in, c in, inner, c ValueError, b ValueError, a ValueError",
    ),
    "an error may be answered": (
        {"inner": fall_further_in, "on_error": lambda _: OWN},
        "own | a in, b in, c in, inner, c ValueError, b ValueError, a out",
    ),
    "an error may be translated": (
        {"inner": fall_further_in, "on_error": decline},
        "Rejection of b | a in, b in, c in, inner, c ValueError, b ValueError, a Rejection",
    ),
    "an error may be raised again": (
        {"inner": fall_further_in, "on_error": fall},
        "ValueError of inner | a in, b in, c in, inner, c ValueError, b ValueError, a ValueError",
    ),
    "a cancellation is seen": (
        {"inner": end_cancelled},
        "CancelledError of None | a in, b in, c in, inner, c CancelledError, b CancelledError, a CancelledError",
    ),
    "a request may be declined": ({"on_request": decline}, "Rejection of b | a in, b in, a Rejection"),
    "a fault on the way in": ({"on_request": fall}, "ValueError of b | a in, b in, a ValueError"),
    "a fault after a wait": ({"on_request": fall_later}, "ValueError of b | a in, b in, a ValueError"),
    "a fault on the way out": (
        {"on_reply": fall},
        "ValueError of b | a in, b in, c in, inner, c out, b out, a ValueError",
    ),
    "no reply on the way in": ({"on_request": lambda: "text"}, "ChainError of b | a in, b in, a ChainError"),
    "no reply on the way out": (
        {"on_reply": lambda _: None},
        "ChainError of b | a in, b in, c in, inner, c out, b out, a ChainError",
    ),
    "a fault of an observer on the way out": (
        {"on_reply": fall, "fail_open": True},
        "answer | a in, b in, c in, inner, c out, b out, a out",
    ),
    "no reply of an observer": (
        {"on_reply": lambda _: None, "fail_open": True},
        "answer | a in, b in, c in, inner, c out, b out, a out",
    ),
    "a fault of an observer with an error": (
        {"inner": fall_further_in, "on_error": stumble, "fail_open": True},
        "ValueError of inner | a in, b in, c in, inner, c ValueError, b ValueError, a ValueError",
    ),
    "an observer may decline": (
        {"on_request": decline, "fail_open": True},
        "Rejection of b | a in, b in, a Rejection",
    ),
}


@pytest.mark.parametrize("timed", [False, True], ids=["joined", "timed"])
@pytest.mark.parametrize("name", CASES)
async def test_what_comes_out_and_who_sees_it(name: str, *, timed: bool) -> None:
    """A chain that is timed has each by itself, and is no different."""
    options, expected = CASES[name]
    assert await Scene(**options).run(timed=timed) == expected


@pytest.mark.parametrize("name", CASES)
async def test_one_that_is_called_is_no_different(name: str) -> None:
    """As a plugin does that holds another one."""
    options, expected = CASES[name]
    scene = Scene(**options)
    scene.plugins = [(name, plugin.__call__, fail_open) for name, plugin, fail_open in scene.plugins]
    assert await scene.run() == expected
