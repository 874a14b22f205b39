"""The configuration as operators write it: YAML to frozen attrs classes, strictly, every problem with its line."""

from plugins.configuration.document import Document
from plugins.configuration.lists import read_list
from plugins.configuration.settings import LogSettings, Settings
from plugins.configuration.structure import describe, structure
from plugins.configuration.watching import FileWatch

__all__ = ["Document", "FileWatch", "LogSettings", "Settings", "describe", "read_list", "structure"]
