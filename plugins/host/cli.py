"""The command `kernel` and its subcommands: what is asked for, with help and examples."""

import asyncio
import json
import platform
import signal
from contextlib import suppress
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

import click

from kernel import ConfigError, Place, Runtime, build
from plugins import STANDARD
from plugins.configuration import Document
from plugins.host import show
from plugins.host.demo import configuration
from plugins.host.failure import CONFIGURATION, Failure, KernelGroup
from plugins.host.instance import Instance, find_instances
from plugins.host.launch import RunOptions, launch
from plugins.host.listener import resolve
from plugins.host.logs import configure_logs
from plugins.host.remote import reload as reload_remote
from plugins.host.source import Source

DISTRIBUTION: Final = "disagg-kernel"
FILE: Final = click.Path(path_type=Path)


def examples(*lines: str) -> str:
    """An epilog that shows each line as it is."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


@click.group(
    cls=KernelGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "kernel run                      serve a small model, nothing to configure",
        "kernel check kernel.yaml        is this configuration usable?",
        "kernel run kernel.yaml          serve with it",
        "kernel plugins                  which plugins run, in which order, and why",
        "kernel reload kernel.yaml       read it again, with no request lost",
    ),
)
def cli() -> None:
    """A plugin microkernel in front of LLM workers.

    Exit codes: 0 done, 1 a fault, 2 the configuration or the command line is wrong.
    """


@cli.command(
    epilog=examples(
        "kernel run",
        "kernel run kernel.yaml",
        "kernel run kernel.yaml --workers 4 --log-format json",
        "kernel run kernel.yaml --listen 0.0.0.0:8000 --insecure",
    )
)
@click.argument("file", type=FILE, required=False)
@click.option("--listen", metavar="HOST:PORT", help="Listen there instead; port 0 takes a free one.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes on the port.")
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Log from there on.")
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), help="How log lines look.")
@click.option("--fd", type=int, hidden=True)
@click.option("--link", type=int, hidden=True)
@click.option("--embedded", multiple=True, hidden=True)
def run(**options: object) -> int:
    """Serve with the configuration FILE.

    Without FILE two small workers are started beside the kernel, with a model that is part of the
    installation; they end with it.

    SIGTERM and Ctrl-C stop accepting, let running requests finish for `grace_seconds`, and exit with 0;
    a second one ends at once. SIGHUP, `kernel reload` and a change of FILE reload it: a bad file changes
    nothing.
    """
    return launch(RunOptions(**options))  # type: ignore[arg-type]


@cli.command(
    epilog=examples(
        "kernel check kernel.yaml",
        "kernel check kernel.yaml && kernel reload kernel.yaml",
    )
)
@click.argument("file", type=FILE)
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
def check(file: Path, insecure: bool) -> None:  # noqa: FBT001 - click gives options by name
    """Do everything that `kernel run FILE` does, except to serve.

    Reads FILE, imports its plugins, resolves their order, builds and starts them, and stops them again. Prints
    every problem and exits with 2 if it cannot be used. Workers that cannot be reached are no problem of FILE.
    """
    document = Document.read(file)
    settings = document.settings()
    configure_logs("error", "auto")
    resolve(*settings.address, insecure=insecure or settings.insecure)
    places = asyncio.run(_start_and_stop(document))
    on = sum(place.on for place in places)
    off = len(places) - on
    click.echo(f"{file}: ok, {on} plugins{f' and {off} off' if off else ''}, listen {settings.listen}")


async def _start_and_stop(document: Document) -> tuple[Place, ...]:
    """The order of a configuration whose plugins start."""
    runtime = Runtime(STANDARD, lambda: document)
    await runtime.start()
    places = runtime.serving.places
    await runtime.stop()
    return places


@cli.command(
    epilog=examples(
        "kernel plugins",
        "kernel plugins --config kernel.yaml",
        "kernel plugins dispatch",
        "kernel plugins --json | jq '.plugins[].name'",
    )
)
@click.argument("name", required=False)
@click.option("--config", type=FILE, help="The configuration to look at, instead of the embedded default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins(name: str | None, config: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Show the plugins, their order and why; or one in full.

    Installed plugins that the configuration does not name are listed, but neither imported nor run;
    naming one here imports it.
    """
    running: list[Instance] = []
    with suppress(Failure):  # whoever cannot look for instances can still look at the chain
        running = find_instances(config)
    try:
        document = Source(config, configuration()).load()
        view = show.View.of(build(STANDARD, document), document.settings(), STANDARD.order)
    except ConfigError:
        for line in show.instance_lines(running):  # what runs goes on with what it had
            click.echo(line)
        raise
    if name is not None:
        shown = view.plugin(name)
        click.echo(json.dumps(shown, indent=2) if as_json else show.plugin_text(shown))
        return
    if as_json:
        click.echo(json.dumps({**view.chain(config), "instances": show.instances_data(running)}, indent=2))
        return
    show.print_chain(view.chain(config))
    for line in show.instance_lines(running):
        click.echo(line)


@cli.command(
    epilog=examples(
        "kernel reload",
        "kernel reload kernel.yaml",
    )
)
@click.argument("file", type=FILE, required=False)
def reload(file: Path | None) -> None:
    """Have the running kernel read its configuration again.

    FILE says which, if more than one runs. Waits for the result: prints "reloaded", or every problem and
    exits with 2, and then the kernel goes on as before.
    """
    instance, problems = reload_remote(file)
    if problems:
        raise Failure(problems, CONFIGURATION)
    click.echo(f"reloaded, pid {instance.state.pid} on {instance.state.listen}")


@cli.command(
    epilog=examples(
        "kernel version",
    )
)
def version() -> None:
    """Print the version."""
    click.echo(f"kernel {installed_version(DISTRIBUTION)}, Python {platform.python_version()}")


def main() -> None:
    """Run the command line of this process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    cli()
