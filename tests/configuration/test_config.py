"""The configuration: the kernel's own settings, each plugin's part, and how a class is described."""

import pytest
from attrs import field, frozen

from kernel import ConfigError, Secret, Switch
from plugins.configuration import Document, Settings, describe
from tests.configuration.classes import Chooser, Deep, Everything, Nothing, Pool


def test_an_empty_file_gives_the_defaults() -> None:
    """Everything has a default."""
    settings = Document.parse("", "f").settings()

    assert settings == Settings()
    assert settings.address == ("127.0.0.1", 8000)
    assert (settings.grace_seconds, settings.keep_alive_seconds, settings.insecure) == (30.0, 75.0, False)
    assert (settings.log.level, settings.log.format, settings.plugins) == ("info", "auto", {})


def test_a_plugin_may_be_named_and_left_empty() -> None:
    """Naming a plugin is enough to switch a third party's on; its configuration stays plain."""
    text = "plugins:\n  a:\n  b: {enabled: false, config: }\n  c: {config: {x: yes}, before: a}\n"
    settings = Document.parse(text, "f").settings()

    assert settings.plugins == {
        "a": Switch(),
        "b": Switch(enabled=False),
        "c": Switch(config={"x": "yes"}, before="a"),
    }
    assert Document.parse("plugins:\nlog:\n", "f").settings() == Settings()


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:80", ("0.0.0.0", 80)), ("localhost:0", ("localhost", 0)), ("'[::1]:8000'", ("::1", 8000)),
        ("host-a.example_b:65535", ("host-a.example_b", 65535)), ("a:65536", None), ("':80'", None), ("8000", None),
        ("host", None), ("'host:'", None), ("::1:80", None), ("'[]:80'", None), ("a b:80", None), ("host:٣", None),
        ("höst:80", None), ("http://host:80", None), ("host:-1", None), ('"host:80\\n"', None), ("''", None),
    ],
)  # fmt: skip
def test_listen_is_a_host_and_a_port(listen: str, address: tuple[str, int] | None) -> None:
    """An address that cannot be meant is refused at its line."""
    document = Document.parse(f"listen: {listen}\n", "f")
    if address:
        assert document.settings().address == address
    else:
        with pytest.raises(ConfigError, match=r"^f:1: listen: expected (host:port with a port up to 65535|str), got"):
            document.settings()


def test_all_problems_of_the_settings_are_raised_together() -> None:
    """A ConfigError lists every problem of the file, each with line and path."""
    text = (
        "listen: 80\ngrace_seconds: -1\nkeep_alive_seconds: 0\nlog: {level: loud}\nplugins:\n"
        "  gate: {enabled: yes, config: [], after: 1}\n  x.y: {enable: true}\nlisten_on: x\n"
    )
    with pytest.raises(ConfigError) as caught:
        Document.parse(text, "kernel.yaml").settings()

    assert caught.value.problems == (
        "kernel.yaml:1: listen: expected str, got 80",
        "kernel.yaml:2: grace_seconds: 'grace_seconds' must be >= 0: -1.0",
        "kernel.yaml:3: keep_alive_seconds: 'keep_alive_seconds' must be > 0: 0.0",
        "kernel.yaml:4: log.level: expected one of ['debug', 'info', 'warning', 'error'], got 'loud'",
        "kernel.yaml:6: plugins.gate.enabled: expected bool, got 'yes'",
        "kernel.yaml:6: plugins.gate.config: expected a mapping, got list",
        "kernel.yaml:6: plugins.gate.after: expected str, got 1",
        "kernel.yaml:7: plugins.x.y.enable: unknown key 'enable', did you mean 'enabled'?",
        "kernel.yaml:8: listen_on: unknown key 'listen_on', did you mean 'listen'?",
    )


def test_a_plugin_gets_its_own_part_of_the_file() -> None:
    """Problems of a plugin's configuration have the place where a person wrote it."""
    document = Document.parse(
        "plugins:\n  guard:\n    config:\n      allow: yes\n  pool: {config: {engine: x}}\n", "kernel.yaml"
    )
    problems: list[str] = []

    assert document.plugin("pool", Pool, problems) == Pool("x")
    assert document.plugin("absent", Deep, problems) is None
    assert document.plugin("guard", Everything, problems) is None
    assert problems == [
        "kernel.yaml:1: plugins.absent.config: missing required key 'name'",
        "kernel.yaml:4: plugins.guard.config.allow: expected bool, got 'yes'",
    ]
    for broken in ("plugins: 1", "plugins: {pool: [1]}", ""):
        assert Document.parse(broken, "f").plugin("pool", Nothing, problems) == Nothing()


def test_a_class_can_be_described() -> None:
    """Keys come with types as a person writes them, and with defaults; a required key has none."""
    assert describe(Pool) == [("engine", "str", None), ("size", "int", "1"), ("timeout", "float", "1.0")]
    described = {name: (kind, default) for name, kind, default in describe(Everything)}
    assert described["words"] == ("tuple[str, ...]", "()")
    assert described["maybe"] == ("str | None", "None")
    assert described["pools"] == ("tuple[Pool, ...]", "()")
    assert described["color"][0] == "Color"
    assert described["mode"] == ("Literal['fast', 'slow', 3]", "'fast'")
    assert described["numbers"] == ("list[int]", "[]")
    assert "state" not in described
    assert describe(Chooser)[0][:2] == ("policy", "Policy")


def test_the_default_of_a_secret_is_not_described() -> None:
    """A secret given as a default in code stays hidden, in a factory too."""

    @frozen
    class Hidden:
        key: Secret = field(default=Secret("hunter2"))
        keys: tuple[Secret, ...] = field(factory=lambda: (Secret("hunter2"),))
        own: str = field()

        @own.default
        def _own(self) -> str:
            return "computed"

    assert "hunter2" not in str(describe(Hidden))
    assert [key for key, _, default in describe(Hidden) if default is None] == []
