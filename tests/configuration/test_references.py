"""What the file only names: secrets by where they are, and classes by their entry point."""

import os
from pathlib import Path

import pytest

from kernel import Secret
from tests.configuration.classes import Chooser, Sticky, made


class TestSecrets:
    """A secret comes from the environment or a file, and is never shown."""

    def test_it_is_read_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`{env: NAME}` takes a variable's value without a trailing newline."""
        monkeypatch.setenv("KERNEL_TEST_KEY", "hunter2\n")
        built, problems = made("  secret: {env: KERNEL_TEST_KEY}\n  secrets: [{env: KERNEL_TEST_KEY}]\n")

        assert problems == []
        assert built.secret.reveal() == "hunter2"
        assert built.secrets == (built.secret,)

    def test_it_is_read_from_a_file(self, tmp_path: Path) -> None:
        """`{file: PATH}` takes a file's text without a trailing newline, and nothing shows it."""
        (tmp_path / "key").write_text("  hunter2\r\n")
        built, problems = made(f"  secret: {{file: {tmp_path / 'key'}}}\n")

        assert problems == []
        assert built.secret.reveal() == "  hunter2"
        assert built.secret == Secret("  hunter2") != Secret("other")
        assert "hunter2" not in f"{built} {built.secret!r} {built.secret}"

    @pytest.mark.parametrize(
        "text",
        ["hunter2", "[hunter2]", "{value: hunter2}", "{env: A, file: hunter2}", "{env: [hunter2]}", "12", "", "{}"],
    )
    def test_written_as_itself_it_is_refused_without_being_shown(self, text: str) -> None:
        """What is no reference is answered with how to write one; no problem quotes it."""
        for key in ("secret", "secrets"):
            built, problems = made(f"  {key}: {f'[{text}]' if key == 'secrets' else text}\n")
            if text or key == "secrets":
                assert "hunter2" not in str(problems)
            if text:
                assert built is None
                assert problems[0].endswith("a secret is written {env: NAME} or {file: PATH}, never as itself")

    def test_a_plain_string_for_a_list_of_secrets_is_not_shown(self) -> None:
        """A forgotten pair of brackets does not put a secret into the log."""
        assert made("  secrets: hunter2\n")[1] == ["2: it.secrets: expected a list, got str"]

    def test_it_must_not_be_empty_or_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable that is unset or empty, and a file that is empty, missing or a folder, are problems."""
        monkeypatch.delenv("KERNEL_TEST_KEY", raising=False)
        assert made("  secret: {env: KERNEL_TEST_KEY}\n")[1] == ["2: it.secret: 'KERNEL_TEST_KEY' is unset or empty"]
        monkeypatch.setenv("KERNEL_TEST_KEY", "\n")
        assert made("  secret: {env: KERNEL_TEST_KEY}\n")[1] == ["2: it.secret: 'KERNEL_TEST_KEY' is unset or empty"]
        (tmp_path / "empty").touch()
        assert "is unset or empty" in made(f"  secret: {{file: {tmp_path}/empty}}\n")[1][0]
        assert "no such file" in made(f"  secret: {{file: {tmp_path}/missing}}\n")[1][0]
        assert "is a directory" in made(f"  secret: {{file: {tmp_path}}}\n")[1][0]
        assert "null byte" in made('  secret: {file: "a\\0b"}\n')[1][0]
        assert os.environ["KERNEL_TEST_KEY"] == "\n"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("policy: sticky", Chooser()),
        ("policy: {type: sticky}", Chooser()),
        ("policy: {seconds: 2, type: sticky}", Chooser(Sticky(2.0))),
        ("other: {type: sticky, seconds: 2}", Chooser(other=Sticky(2.0))),
        ("other:", Chooser()),
        ("policy: sticki", "it.policy: nothing is named 'sticki'"),
        ("policy: {seconds: 2}", "it.policy: expected NAME or {type: NAME, ...}"),
        ("policy:", "it.policy: expected NAME or {type: NAME, ...}"),
        ("policy: {type: 1}", "it.policy: expected NAME or {type: NAME, ...}"),
        ("policy: [sticky]", "it.policy: expected a mapping, got list"),
        ("policy: {type: sticky, second: 2}", "it.policy.second: unknown key 'second', did you mean 'seconds'?"),
        ("other: {type: sticky, seconds: x}", "it.other.seconds: expected float, got 'x'"),
    ],
)
def test_an_extended_type_is_found_by_its_name(text: str, outcome: object) -> None:
    """The file names the class, and the rest of the mapping is that class's configuration."""
    built, problems = made(f"  {text}\n", Chooser)

    assert (problems[0] if problems else built) == (f"2: {outcome}" if isinstance(outcome, str) else outcome)
