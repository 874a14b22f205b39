"""Whom a policy tells what it chose."""

from attrs import define

from plugins.dispatch.policy import Choices


@define(eq=False)
class Company:
    """The same policy in other processes; `choices` is None in a process that serves alone."""

    choices: Choices | None = None
