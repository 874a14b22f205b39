"""A plugin microkernel in front of LLM workers: one ordered chain, one exchange for each request."""
# fmt: off

from kernel.app import build_app
from kernel.asgi import KernelMiddleware
from kernel.assembly import Assembly, build
from kernel.config import Configuration, Extends, Secret, Switch
from kernel.discovery import Extension, find_extension, find_extensions
from kernel.errors import ChainError, ClientGone, ConfigError, DiscoveryError, KernelError, OrderError, Rejection
from kernel.exchange import Endpoint, Exchange, Resources, Slot
from kernel.order import Place, resolve
from kernel.plugin import (
    CallNext, HasLifecycle, HasReadiness, HasSuccession, OrderLine, Plugin, PluginSpec, Standard, Telemetry,
)
from kernel.reply import (
    CLIENT_GONE, COMPLETED, FAILED, NEVER_BEGUN, BytesReply, DataReply, Outcome, Reply, StreamReply,
)
from kernel.runtime import Runtime
from kernel.wire import TRUNCATED

__all__ = [
    "CLIENT_GONE", "COMPLETED", "FAILED", "NEVER_BEGUN", "TRUNCATED", "Assembly", "BytesReply", "CallNext",
    "ChainError", "ClientGone", "ConfigError", "Configuration", "DataReply", "DiscoveryError", "Endpoint", "Exchange",
    "Extends", "Extension", "HasLifecycle", "HasReadiness", "HasSuccession", "KernelError", "KernelMiddleware",
    "OrderError", "OrderLine", "Outcome", "Place", "Plugin", "PluginSpec", "Rejection", "Reply", "Resources",
    "Runtime", "Secret", "Slot", "Standard", "StreamReply", "Switch", "Telemetry", "build", "build_app",
    "find_extension", "find_extensions", "resolve",
]
