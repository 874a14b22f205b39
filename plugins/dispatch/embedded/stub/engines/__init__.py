"""The engines that a stub worker can stand for, by name."""

from collections.abc import Mapping
from typing import Final

from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.openai import OpenAIEngine
from plugins.dispatch.embedded.stub.engines.trtllm import TrtllmEngine

ENGINES: Final[Mapping[str, type[Engine]]] = {"openai": OpenAIEngine, "trtllm": TrtllmEngine}
