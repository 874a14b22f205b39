"""Coding agents without a person before them, each in an empty environment and told to talk to the kernel alone."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.clients.client import bare
from tests.clients.install import node, node_modules

SECONDS: Final = 90.0

BRIEF: Final = 1000
"""Tokens of the longest answer, for a model that takes no more than a few thousand."""

_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}

_CODEX: Final = """\
model = "{model}"
model_provider = "kernel"
check_for_update_on_startup = false

[model_providers.kernel]
name = "kernel"
base_url = "{url}/v1"
env_key = "KERNEL_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
"""

INSTRUCTIONS: Final = "You are a helpful assistant."

# what makes a request long is left out: nearly all of it are tools
_BRIEF_CODEX: Final = """
project_doc_max_bytes = 0
model_instructions_file = "{instructions}"
web_search = "disabled"
"""

_NO_TOOLS: Final = """
[agents]
enabled = false

[skills.bundled]
enabled = false

[features]
"""

_FEATURES: Final = ("apps", "goals", "plugins", "shell_tool", "unified_exec", "view_image")


@frozen
class Outcome:
    """How a run ended, and what it told the user; `failed` is what the agent itself says of it."""

    code: int
    text: str
    failed: bool


@frozen
class Agent:
    """An agent, by the tool that runs a command, the field that holds the command, and what it asks the kernel.

    One that is `brief` sends no tools and few instructions, which a small model can bear.
    """

    name: str
    program: str
    tool: str
    field: str
    asks: str
    endpoint: str
    brief: bool = False

    def words(self, folder: Path, url: str, model: str, prompt: str) -> tuple[list[str], dict[str, str]]:
        """The command line and the variables of a run."""
        command = [node(), str(node_modules() / self.program)]
        if self.name == "Codex":
            (folder / "config.toml").write_text(self._settings(folder, url, model))
            flags = ["exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
            return [*command, *flags, prompt], bare(folder, CODEX_HOME=str(folder), KERNEL_KEY="none")
        told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_MAX_RETRIES": "0"}
        models = {"ANTHROPIC_MODEL": model, "ANTHROPIC_SMALL_FAST_MODEL": model}
        flags = ["-p", prompt, "--model", model, "--output-format", "json"]
        if self.brief:
            flags += ["--bare", "--tools", "", "--system-prompt", INSTRUCTIONS]
            told["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(BRIEF)
        else:
            flags += ["--allowedTools", "Bash"]
        return [*command, *flags], bare(folder, CLAUDE_CONFIG_DIR=str(folder), **_QUIET, **told, **models)

    def _settings(self, folder: Path, url: str, model: str) -> str:
        settings = _CODEX.format(model=model, url=url)
        if not self.brief:
            return settings
        instructions = folder / "instructions.md"
        instructions.write_text(INSTRUCTIONS)
        switches = "".join(f"{feature} = false\n" for feature in _FEATURES)
        return _BRIEF_CODEX.format(instructions=instructions) + settings + _NO_TOOLS + switches

    def run(self, folder: Path, url: str, model: str, prompt: str, seconds: float = SECONDS) -> Outcome:
        """Let it do what a prompt says, to its end."""
        command, variables = self.words(folder, url, model, prompt)
        done = subprocess.run(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, f"{self.name} said nothing: {done.stderr[-2000:]}"
        return _codex(done.returncode, lines) if self.name == "Codex" else _claude(done.returncode, lines[-1])

    @contextmanager
    def running(self, folder: Path, url: str, model: str, prompt: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A run that is to be broken off."""
        command, variables = self.words(folder, url, model, prompt)
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _claude(code: int, result: dict[str, Any]) -> Outcome:
    return Outcome(code, result["result"], result["is_error"])


def _codex(code: int, events: list[dict[str, Any]]) -> Outcome:
    said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
    wrong = [event["error"]["message"] for event in events if event["type"] == "turn.failed"]
    return Outcome(code, (wrong or said or [""])[-1], bool(wrong))


CLAUDE: Final = Agent(
    "Claude Code", "@anthropic-ai/claude-code/cli-wrapper.cjs", "Bash", "command", "POST /v1/messages?beta=true",
    "messages",
)  # fmt: skip
CODEX: Final = Agent("Codex", "@openai/codex/bin/codex.js", "exec_command", "cmd", "POST /v1/responses", "responses")
