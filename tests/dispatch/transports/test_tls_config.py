"""What YAML may say of TLS, and what is told of files that cannot be used."""

from pathlib import Path

import pytest

from plugins.configuration import Document
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.transports.tls import TlsConfig
from tests.dispatch.transports.certificates import Papers, openssl


def test_files_that_changed_make_another_configuration(papers: Papers, tmp_path: Path) -> None:
    """So that a reload makes new connections with them; the same files make the same one."""
    file = tmp_path / "ca.pem"
    file.write_bytes(papers.ours.own.certificate.read_bytes())
    before = TlsConfig(ca=file)
    assert before == TlsConfig(ca=file)
    assert hash(before) == hash(TlsConfig(ca=file))
    file.write_bytes(papers.foreign.own.certificate.read_bytes())
    assert before != TlsConfig(ca=file)


def problems_of(pool: str) -> list[str]:
    """What a file is refused for whose only pool says this beside its name."""
    problems: list[str] = []
    text = "plugins: {dispatch: {config: {pools: [{model: m, " + pool + "}]}}}"
    Document.parse(text, "kernel.yaml").plugin("dispatch", Dispatch, problems)
    return [problem.partition("plugins.dispatch.config.pools[0]")[2] for problem in problems]


SECURE = "workers: ['https://a:1']"


def test_yaml_names_the_files(papers: Papers) -> None:
    """And a secret for a key that is encrypted."""
    own = papers.kernel
    encrypted, password = own.key.with_suffix(".encrypted"), own.key.with_suffix(".password")
    password.write_text("hush\n")
    openssl("ec", "-in", own.key, "-aes256", "-passout", "pass:hush", "-out", encrypted)
    ca = papers.ours.own.certificate
    for more in (f"key: {own.key}", f"key: {encrypted}, key_password: {{file: {password}}}, server_name: a.test"):
        assert problems_of(f"{SECURE}, tls: {{ca: {ca}, certificate: {own.certificate}, {more}}}") == []
    wrong = f"certificate: {own.certificate}, key: {encrypted}"
    for more in ("", f", key_password: {{file: {own.certificate}}}"):
        (problem,) = problems_of(f"{SECURE}, tls: {{{wrong}{more}}}")
        assert problem.startswith(".tls: certificate ")
        assert problem.endswith("cannot be used: no PEM, or the key has another password")


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ("ca: {folder}/none.pem", ".tls.ca: '{folder}/none.pem' cannot be read: No such file or directory"),
        ("ca: {folder}", ".tls.ca: '{folder}' cannot be read: Is a directory"),
        ("ca: {folder}/ours.key", ".tls.ca: '{folder}/ours.key' holds no certificates in PEM: "),
        ("certificate: {folder}/none.pem, key: {folder}/ours.key", ".tls.certificate: '{folder}/none.pem' cannot be"),
        ("certificate: {folder}/ours.pem, key: {folder}/none.key", ".tls.key: '{folder}/none.key' cannot be read: "),
        ("certificate: {folder}/ours.pem", ".tls: a certificate needs its key"),
        ("key: {folder}/ours.key", ".tls: a certificate needs its key"),
        ("certificate: {folder}/ours.pem, key: {folder}/server.key", ".tls: certificate '{folder}/ours.pem' and key "),
        ("certificate: {folder}/ours.key, key: {folder}/ours.key", ".tls: certificate '{folder}/ours.key' and key "),
        ("key_password: {{file: {folder}/ours.pem}}", ".tls: there is no key"),
        ("verify: false, server_name: a", ".tls: with verify: false"),
        ("verify: false, ca: {folder}/ours.pem", ".tls: with verify: false"),
        ("server_name: ''", ".tls.server_name: expected the name of a host"),
        ('server_name: "a\\r\\nb"', ".tls.server_name: expected the name of a host"),
        ("verify: 1", ".tls.verify: expected bool"),
        ("cert: x", ".tls"),
    ],
)
def test_what_cannot_be_used_is_told_by_a_check(papers: Papers, tls: str, problem: str) -> None:
    """With its place in the file."""
    folder = papers.ours.folder
    (found,) = problems_of(f"{SECURE}, tls: {{{tls.format(folder=folder)}}}")
    assert found.startswith(problem.format(folder=folder))


def test_tls_without_a_worker_that_has_it_is_a_mistake() -> None:
    """Whoever wrote it believes that connections are encrypted."""
    (problem,) = problems_of("workers: ['http://a:1'], tls: {}")
    assert problem == ": tls is for workers at https://, and there is none"
    assert problems_of("workers: ['http://a:1', 'https://a:2'], tls: {}") == []


def test_workers_that_are_found_later_may_have_tls(tmp_path: Path) -> None:
    """What they are is not known yet."""
    assert problems_of(f"discovery: {{type: file, path: {tmp_path}/workers.yaml}}, tls: {{}}") == []
