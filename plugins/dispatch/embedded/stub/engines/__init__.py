"""The engines that a stub worker can stand for, by name."""

from collections.abc import Mapping
from typing import Final

from plugins.dispatch.embedded.stub.engines.base import Engine
from plugins.dispatch.embedded.stub.engines.lmdeploy import LmdeployEngine
from plugins.dispatch.embedded.stub.engines.openai import OpenAIEngine
from plugins.dispatch.embedded.stub.engines.sglang import SglangEngine
from plugins.dispatch.embedded.stub.engines.trtllm import TrtllmEngine
from plugins.dispatch.embedded.stub.engines.vllm import VllmEngine

ENGINES: Final[Mapping[str, type[Engine]]] = {
    "lmdeploy": LmdeployEngine,
    "openai": OpenAIEngine,
    "sglang": SglangEngine,
    "trtllm": TrtllmEngine,
    "vllm": VllmEngine,
}
