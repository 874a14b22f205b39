"""An answer's head goes out with its first bytes, or by itself when those do not come at once."""

import asyncio
from typing import Any

import pytest
from attrs import define, field

from plugins.host.outlet import Outlet

pytestmark = pytest.mark.anyio


@define(eq=False)
class Packets:
    """A transport that keeps apart what is written at once."""

    written: list[bytes] = field(factory=list)
    closing: bool = False

    def write(self, data: bytes) -> None:
        """Write bytes."""
        assert not self.closing
        self.written.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        """Write several parts at once."""
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        """Whether it closes."""
        return self.closing


def outlet(packets: Packets) -> Outlet:
    """An outlet whose next answer begins."""
    transport: Any = packets
    made = Outlet(transport, lambda: None, asyncio.get_running_loop())
    made.expect_head()
    return made


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 1024 * 1024])
async def test_a_head_and_its_body_are_one_packet(size: int) -> None:
    """Whatever is written after them is not held back."""
    packets = Packets()
    out = outlet(packets)
    out.write(b"head")
    assert packets.written == []
    out.write(b"x" * size)
    out.write(b"more")
    await asyncio.sleep(0)
    assert packets.written == [b"head" + b"x" * size, b"more"]


async def test_a_head_waits_for_one_turn_of_the_loop() -> None:
    """A stream that has begun is one for its client, too."""
    packets = Packets()
    out = outlet(packets)
    out.write(b"head")
    await asyncio.sleep(0)
    assert packets.written == [b"head"]
    out.write(b"first")
    assert packets.written == [b"head", b"first"]


async def test_a_head_without_a_body_can_be_written_at_once() -> None:
    """Before the connection closes, or the next answer begins."""
    packets = Packets()
    out = outlet(packets)
    out.write(b"head")
    out.flush()
    out.flush()
    out.expect_head()
    out.write(b"next")
    out.write(b"body")
    await asyncio.sleep(0)
    assert packets.written == [b"head", b"nextbody"]


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    """A head that was held back is lost with it."""
    packets = Packets()
    out = outlet(packets)
    out.write(b"head")
    packets.closing = True
    await asyncio.sleep(0)
    assert packets.written == []
    assert out.is_closing()
