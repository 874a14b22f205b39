"""What `kernel run` does before anything is served: settings, address, embedded workers, one process or several."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import attrs
import click
from attrs import frozen

from kernel import build
from plugins import STANDARD
from plugins.configuration import Settings
from plugins.host.child import READY, Link
from plugins.host.demo import configuration, embedded_workers, invitation
from plugins.host.instance import Record, State
from plugins.host.listener import adopt, bind, bound_address
from plugins.host.logs import configure_logs
from plugins.host.serve import Service
from plugins.host.source import Source
from plugins.host.supervisor import Supervisor


@frozen(kw_only=True)
class RunOptions:
    """The command line of `kernel run`; `fd`, `link` and `embedded` are for the processes of a supervisor."""

    file: Path | None
    listen: str | None
    workers: int
    insecure: bool
    log_level: Literal["debug", "info", "warning", "error"] | None
    log_format: Literal["console", "json", "auto"] | None
    fd: int | None
    link: int | None
    embedded: Sequence[str]

    def apply(self, settings: Settings) -> Settings:
        """The settings with what the command line overrides."""
        log = attrs.evolve(
            settings.log,
            level=self.log_level or settings.log.level,
            format=self.log_format or settings.log.format,
        )
        try:
            listen = self.listen or settings.listen
            return attrs.evolve(settings, listen=listen, insecure=self.insecure or settings.insecure, log=log)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from None

    def child_arguments(self, urls: Sequence[str]) -> list[str]:
        """What a supervisor's processes are called with."""
        arguments = [] if self.file is None else [str(self.file)]
        arguments += [word for url in urls for word in ("--embedded", url)]
        if self.log_level is not None:
            arguments += ["--log-level", self.log_level]
        if self.log_format is not None:
            arguments += ["--log-format", self.log_format]
        return arguments


def say(text: str) -> None:
    """Write to standard output, if anybody still reads it."""
    with suppress(OSError):
        click.echo(f"kernel: {text}")


def launch(options: RunOptions) -> int:
    """Serve until a signal says to stop; returns the exit code."""
    link = Link(options.link) if options.link is not None else None
    source = Source(options.file, configuration(options.embedded) if options.embedded else configuration())
    settings = options.apply(source.load().settings())
    configure_logs(settings.log.level, settings.log.format)
    with ExitStack() as stack:
        given = options.fd
        listener = adopt(given) if given is not None else bind(*settings.address, insecure=settings.insecure)
        stack.callback(listener.close)
        urls: Sequence[str] = ()
        if options.file is None and not options.embedded:
            urls = stack.enter_context(embedded_workers(say))
            source = Source(None, configuration(urls))

        def tell_ready() -> None:
            if link is not None:
                link.tell(READY)
            if urls:
                say(invitation(bound_address(listener)))

        if options.workers > 1:
            arguments = options.child_arguments(urls)
            return _supervise(
                options,
                source,
                Supervisor(listener, arguments, options.workers, settings.grace_seconds, tell_ready),
            )
        return Service(source, settings, listener).run(tell_ready, link)


def _supervise(options: RunOptions, source: Source, supervisor: Supervisor) -> int:
    """Run several processes, once the configuration has proved usable."""
    build(STANDARD, source.load())
    address = bound_address(supervisor.listener)
    record = Record(State.of_this_process(address, options.file, workers=options.workers))
    record.open()
    try:
        return supervisor.run()
    finally:
        record.remove()
