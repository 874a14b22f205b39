"""The socket that the kernel listens on, bound once and shared by every process of an instance."""

import errno
import ipaddress
import socket
from typing import Any, Final

from plugins.host.failure import CONFIGURATION, Failure

REASONS: Final = {
    errno.EADDRINUSE: "the address is in use already",
    errno.EACCES: "permission denied",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


def resolve(host: str, port: int, *, insecure: bool = False) -> tuple[socket.AddressFamily, Any]:
    """The family and socket address that `host` stands for.

    Raises:
        Failure: there is none, or other machines could reach it and nobody said that they may.
    """
    where = describe(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise refusal(error, where) from None
    # where a name has addresses of both families, the one that people type comes first
    family, _, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
    if not insecure and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise Failure(
            f"{where} can be reached from other machines, and there is no authentication yet: "
            "listen on 127.0.0.1, or allow it with `insecure: true` or --insecure",
            CONFIGURATION,
        )
    return family, address


def bind(host: str, port: int, *, insecure: bool = False) -> socket.socket:
    """A bound socket that does not listen yet; port 0 takes a free one.

    Raises:
        Failure: the address cannot be had, or others could reach it and nobody said that they may.
    """
    family, address = resolve(host, port, insecure=insecure)
    # naming the protocol makes asyncio switch Nagle's algorithm off for every accepted connection
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise refusal(error, describe(host, port)) from None
    listener.settimeout(0)
    return listener


def adopt(descriptor: int) -> socket.socket:
    """The socket behind a descriptor that this process was started with.

    Raises:
        Failure: it is none.
    """
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as error:
        raise Failure(f"--fd {descriptor}: {(error.strerror or str(error)).lower()}", CONFIGURATION) from None
    listener.settimeout(0)
    return listener


def refusal(error: OSError | UnicodeError, where: str) -> Failure:
    """Why an address cannot be listened on, in one line."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    reason = REASONS.get(number or 0, (getattr(error, "strerror", None) or str(error)).lower())
    return Failure(f"cannot listen on {where}: {reason}")


def describe(host: str, port: int) -> str:
    """`host:port`, with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound_address(listener: socket.socket) -> str:
    """The address that a socket is bound to, as `host:port`."""
    host, port = listener.getsockname()[:2]
    return describe(host, port)
