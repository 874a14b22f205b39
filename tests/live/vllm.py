"""A real vLLM worker on the CPU, whose KV caches go over NIXL."""

import json
from typing import Any, Final

from attrs import define

from tests.live.environment import VLLM, engine_variables, model_folder
from tests.live.worker import MODEL, Worker

BLOCK: Final = 32  # tokens; the CPU's usual 128 would leave most prompts of a test without a whole block
CONTEXT: Final = 8192  # tokens of prompt and answer: what the model was made for


@define(eq=False)
class VllmWorker(Worker):
    """A vLLM server."""

    def computed(self) -> float:
        """How many tokens of prompts it has computed itself."""
        return self.metric("vllm:prompt_tokens_by_source_total", source="local_compute")

    def fetched(self) -> float:
        """How many tokens of prompts it has fetched from another worker."""
        return self.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")

    def busy(self) -> float:
        """How many requests it runs, or holds for later."""
        return self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting")

    def command(self) -> list[str]:
        """The words that start it, its interpreter first."""
        words = [
            *(str(VLLM.ready()), "-m", "vllm.entrypoints.cli.main", "serve", str(model_folder())),
            *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(self.port)),
            # in half precision a text depends on how its prompt was cut into batches
            *("--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", str(CONTEXT), "--max-num-seqs", "24"),
            # clients that do not say how they want it sampled get the same answer each time
            *("--override-generation-config", json.dumps({"temperature": 0})),
            # a worker says what it runs after each batch: a long prompt takes several
            *("--max-num-batched-tokens", "256"),
            *("--block-size", str(BLOCK), "--kv-cache-memory-bytes", str(768 << 20)),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-prompt-tokens-details"),
        ]
        return words if self.role is None else [*words, "--kv-transfer-config", json.dumps(self._transfer())]

    def _transfer(self) -> dict[str, Any]:
        kinds = {"context": "kv_producer", "generation": "kv_consumer"}
        return {"kv_connector": "NixlConnector", "kv_role": kinds[self.role or ""], "kv_buffer_device": "cpu"}

    def variables(self) -> dict[str, str]:
        """The variables of its process."""
        return engine_variables() | {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            # without these its own sockets are bound to the machine's outer address
            "VLLM_HOST_IP": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": "lo",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_port),
        }
