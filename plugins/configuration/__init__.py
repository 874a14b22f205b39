"""The configuration as operators write it: YAML to frozen attrs classes, strictly, every problem with its line."""

from plugins.configuration.document import Document
from plugins.configuration.settings import LogSettings, Settings
from plugins.configuration.structure import describe, structure

__all__ = ["Document", "LogSettings", "Settings", "describe", "structure"]
