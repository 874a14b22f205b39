"""The standard distribution: the plugins, their order, their endpoints, and the command line."""

from typing import Final

from kernel import Standard
from plugins.configuration import Document
from plugins.endpoints import ENDPOINTS
from plugins.metrics import PrometheusTelemetry
from plugins.order import STANDARD_ORDER

STANDARD: Final = Standard(order=STANDARD_ORDER, endpoints=ENDPOINTS, telemetry=PrometheusTelemetry())

parse_document = Document.parse
read_document = Document.read

__all__ = ["STANDARD", "parse_document", "read_document"]
