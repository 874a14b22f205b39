"""An authority and what it signs, made by OpenSSL's command line."""

import ssl
import subprocess
from pathlib import Path

from attrs import frozen

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@frozen
class Certificate:
    """Two PEM files."""

    certificate: Path
    key: Path


@frozen
class Authority:
    """Signs certificates, all in one folder."""

    folder: Path
    name: str

    @property
    def own(self) -> Certificate:
        """Its own."""
        return Certificate(self.folder / f"{self.name}.pem", self.folder / f"{self.name}.key")

    @classmethod
    def make(cls, folder: Path, name: str) -> "Authority":
        """A new one."""
        authority = cls(folder, name)
        own = authority.own
        openssl("req", "-x509", *_KEY, "-keyout", own.key, "-out", own.certificate, "-subj", f"/CN={name}")
        return authority

    def sign(self, name: str, alternative: str) -> Certificate:
        """A certificate for an alternative name such as `IP:127.0.0.1`."""
        made = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.txt"
        extensions.write_text(f"subjectAltName={alternative}\n")
        openssl("req", *_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-CA", self.own.certificate, "-CAkey", self.own.key, "-CAcreateserial")
        openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", made.certificate)
        return made


@frozen
class Papers:
    """An authority, what it signed, and another one."""

    ours: Authority
    foreign: Authority
    server: Certificate
    named: Certificate
    kernel: Certificate

    @classmethod
    def make(cls, folder: Path) -> "Papers":
        """New ones."""
        ours, foreign = Authority.make(folder, "ours"), Authority.make(folder, "foreign")
        return cls(
            ours,
            foreign,
            ours.sign("server", "IP:127.0.0.1"),
            ours.sign("named", "DNS:worker.test"),
            ours.sign("kernel", "DNS:kernel.test"),
        )


def openssl(*arguments: str | Path) -> None:
    """Run a command of OpenSSL."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


def serve_with(own: Certificate, clients: Authority | None = None) -> ssl.SSLContext:
    """A server's context, which with `clients` wants a certificate that they signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.certificate, own.key)
    if clients is not None:
        context.load_verify_locations(clients.own.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
