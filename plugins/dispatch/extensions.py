"""Finds the classes of engines, policies and discoveries that the YAML names."""

from typing import cast

import attrs

from kernel import find_extension
from plugins.dispatch.discovery.contract import Discovery
from plugins.dispatch.engine import Engine
from plugins.dispatch.policy import Policy


def load_engine(name: str) -> type[Engine]:
    """The class of the engine `name`, one from an entry point.

    Raises:
        DiscoveryError: there is none, or it cannot be used.
    """
    return cast("type[Engine]", _load("kernel.engines", name, "plan", "check", "body", "read"))


def load_discovery(name: str) -> type[Discovery]:
    """The class of the discovery `name`, one from an entry point.

    Raises:
        DiscoveryError: there is none, or it cannot be used.
    """
    return cast("type[Discovery]", _load("kernel.discovery", name, "follow"))


def load_policy(name: str) -> type[Policy]:
    """The class of the policy `name`, one from an entry point.

    Raises:
        DiscoveryError: there is none, or it cannot be used.
    """
    return cast("type[Policy]", _load("kernel.policies", name, "choose"))


def _load(group: str, name: str, *members: str) -> type:
    extension = find_extension(group, name)
    found = extension.load()
    if not isinstance(found, type) or not attrs.has(found):
        raise extension.unusable(f"expected an attrs class, got {found!r:.60}")
    missing = [member for member in members if not hasattr(found, member)]
    if missing:
        raise extension.unusable(f"{found.__name__} has no {', '.join(missing)}")
    return found
