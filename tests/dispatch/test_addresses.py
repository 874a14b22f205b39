"""Which addresses of workers are accepted."""

import pytest

from plugins.dispatch.addresses import normal_url


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://127.0.0.1:9001", "http://127.0.0.1:9001"),
        ("http://127.0.0.1:9001/", "http://127.0.0.1:9001"),
        ("HTTP://Worker-1.Example:9001", "http://worker-1.example:9001"),
        ("http://worker", "http://worker:80"),
        ("https://worker", "https://worker:443"),
        ("http://[::1]:9001", "http://[::1]:9001"),
        ("http://worker:80/models/a/", "http://worker:80/models/a"),
        ("http://my_worker.ns.svc:8000", "http://my_worker.ns.svc:8000"),
    ],
)
def test_an_address_has_one_normal_form(given: str, normal: str) -> None:
    """Two spellings of one address are one worker."""
    assert normal_url(given) == normal
    assert normal_url(normal) == normal


@pytest.mark.parametrize(
    "given",
    [
        "",
        "127.0.0.1:9001",
        "localhost:9001",
        "worker",
        "ftp://worker:21",
        "unix:///run/worker.sock",
        "http://",
        "http://:9001",
        "http://worker:port",
        "http://worker:0",
        "http://worker:70000",
        "http://worker:9001?model=a",
        "http://worker:9001?",
        "http://worker:9001#a",
        "http://wor ker:9001",
        "http://worker:9001/\r\nx: y",
        "http://wörker:9001",
        "http://worker:9001/../admin",
        "http://worker:9001/%2e%2e",
        "http://worker:9001//v2",
        "http://[::1:9001",
        "http://-:9001",
    ],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    """An address is a scheme, a host, perhaps a port and a plain path."""
    with pytest.raises(ValueError, match="worker's address"):
        normal_url(given)


def test_the_path_of_the_api_is_not_part_of_an_address() -> None:
    """The base URL that SDKs take is a likely mistake, and is named as such."""
    with pytest.raises(ValueError, match="leave out the /v1"):
        normal_url("http://worker:9001/v1/")


@pytest.mark.parametrize("given", ["http://user:secret@worker:9001", "http://secret@worker", "ftp://a:secret@b"])
def test_a_refusal_does_not_repeat_credentials(given: str) -> None:
    """Credentials in an address are refused, and stay out of the log."""
    with pytest.raises(ValueError, match="api_key") as caught:
        normal_url(given)
    assert "secret" not in str(caught.value)
