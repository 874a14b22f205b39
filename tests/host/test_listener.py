"""The address to listen on: what it is, who can reach it, why it cannot be had."""

import errno
import socket

import pytest

from plugins.host.failure import CONFIGURATION, FAULT, Failure
from plugins.host.listener import adopt, bind, bound_address, refusal, resolve


def test_bind() -> None:
    """Port 0 is a free port; the protocol is named and connections are not accepted yet."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert bound_address(listener).startswith("127.0.0.1:")
        assert not bound_address(listener).endswith(":0")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname(), timeout=5)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1"])
def test_loopback(host: str) -> None:
    """Only this machine reaches these."""
    family, address = resolve(host, 8000)
    assert family in (socket.AF_INET, socket.AF_INET6)
    assert address[1] == 8000


def test_localhost_is_what_people_type() -> None:
    """A name with addresses of both families stands for the older one."""
    assert resolve("localhost", 8000)[1] == ("127.0.0.1", 8000)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:127.0.0.1", "2001:db8::1"])
def test_reachable_from_elsewhere(host: str) -> None:
    """What others may reach is refused as configuration, unless it is allowed."""
    with pytest.raises(Failure, match="can be reached from other machines") as caught:
        resolve(host, 8000)
    assert caught.value.code == CONFIGURATION
    assert resolve(host, 8000, insecure=True)


def test_address_of_another_machine() -> None:
    """An address that this machine does not have is one line."""
    with pytest.raises(Failure, match=r"^cannot listen on 192\.0\.2\.1:8000: this machine has no such address$"):
        bind("192.0.2.1", 8000, insecure=True)


def test_name_that_does_not_exist() -> None:
    """A name without an address is one line."""
    with pytest.raises(Failure, match=r"^cannot listen on no-such-host\.invalid:8000: ") as caught:
        bind("no-such-host.invalid", 8000)
    assert caught.value.code == FAULT
    assert len(caught.value.problems) == 1


def test_permission() -> None:
    """A port that only root may use is one line."""
    failure = refusal(PermissionError(errno.EACCES, "Permission denied"), "127.0.0.1:80")
    assert (failure.problems, failure.code) == (("cannot listen on 127.0.0.1:80: permission denied",), FAULT)


def test_adopt() -> None:
    """A descriptor that is no socket is refused as configuration."""
    with pytest.raises(Failure, match="--fd 9999: bad file descriptor") as caught:
        adopt(9999)
    assert caught.value.code == CONFIGURATION
