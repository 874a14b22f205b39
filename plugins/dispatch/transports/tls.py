"""How workers at `https://` are known, and what they are shown to know the kernel."""

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import Attribute, field, frozen, validators

from kernel import Secret


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error


def _trusting(path: Path | None) -> ssl.SSLContext:
    """A context that trusts the authorities in a file, or else those of the system."""
    if path is None:
        return ssl.create_default_context()
    _read(path)
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError as error:
        raise ValueError(f"{str(path)!r} holds no certificates in PEM: {error.reason or error}") from error


def _check_authorities(_instance: object, _attribute: "Attribute[Any]", value: Path) -> None:
    _trusting(value)


def _check_readable(_instance: object, _attribute: "Attribute[Any]", value: Path) -> None:
    _read(value)


def _check_host(_instance: object, _attribute: "Attribute[Any]", value: str) -> None:
    if not (value.isascii() and value.isprintable()) or not value or " " in value:
        raise ValueError(f"expected the name of a host, got {value!r:.60}")


@frozen
class TlsConfig:
    """TLS to workers; without it they need a certificate that the system trusts, for the name in their URL.

    `ca` is a PEM file of the authorities that are trusted instead. `certificate` and `key` are PEM files that the
    kernel shows to workers that ask who it is, the key's opened by `key_password` if it is encrypted. `server_name`
    is what a worker's certificate must be for where that is not the host of its URL. Without `verify` whoever answers
    is believed to be the worker, which only a test can want. A reload reads changed files again.
    """

    ca: Path | None = field(default=None, validator=validators.optional(_check_authorities))
    certificate: Path | None = field(default=None, validator=validators.optional(_check_readable))
    key: Path | None = field(default=None, validator=validators.optional(_check_readable))
    key_password: Secret | None = None
    server_name: str | None = field(default=None, validator=validators.optional(_check_host))
    verify: bool = True
    context: ssl.SSLContext = field(init=False, eq=False, repr=False)
    _content: str = field(init=False, repr=False)
    """What stands in the files: with other contents, connections have to be new ones."""

    @context.default
    def _build_context(self) -> ssl.SSLContext:
        if (self.certificate is None) is not (self.key is None):
            raise ValueError("a certificate needs its key, and a key its certificate")
        if self.key_password is not None and self.key is None:
            raise ValueError("there is no key that key_password could open")
        if not self.verify and (self.ca is not None or self.server_name is not None):
            raise ValueError("with verify: false, ca and server_name mean nothing")
        context = _trusting(self.ca)
        context.set_alpn_protocols(["http/1.1"])
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            # without a password OpenSSL would ask for one on the terminal
            password = "" if self.key_password is None else self.key_password.reveal()
            try:
                context.load_cert_chain(self.certificate, self.key, password)
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or "no PEM, or the key has another password"
                names = f"certificate {str(self.certificate)!r} and key {str(self.key)!r}"
                raise ValueError(f"{names} cannot be used: {reason}") from error
        return context

    @_content.default
    def _digest(self) -> str:
        paths = (self.ca, self.certificate, self.key)
        return " ".join("" if path is None else sha256(_read(path)).hexdigest() for path in paths)
