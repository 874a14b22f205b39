"""The fields by which vLLM's answers of completions and chat differ from others, and the choice of a shape."""

from collections.abc import Iterator, Mapping
from uuid import uuid4

from attrs import define

from plugins.dispatch.embedded.stub.apis import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.engines.vllm_newer_shapes import VllmMessages, VllmResponses
from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape, event
from plugins.dispatch.embedded.stub.shapes.openai import Extras, OpenAIShape
from plugins.dispatch.embedded.stub.text import Piece

FINGERPRINT = "vllm-stub"

_PREFIXES: Mapping[str, str] = {COMPLETIONS: "cmpl", CHAT: "chatcmpl", MESSAGES: "chatcmpl", RESPONSES: "resp"}
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_TRANSFER = {"kv_transfer_params": None, "ec_transfer_params": None}
_CHAT = Extras(
    body={"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None, **_TRANSFER, "metrics": None},
    choice={"token_ids": None, "routed_experts": None},
    message={"refusal": None, "annotations": None, "audio": None, "function_call": None, "reasoning": None},
)
_COMPLETION = Extras(
    body={**_TRANSFER, "metrics": None},
    choice={"token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None},
)


def vllm_id(api: str, asked: str | None) -> str:
    """Make the id of an answer, out of the one that the request's header has if the API takes it."""
    own = uuid4().hex[:16] if asked is None or api == RESPONSES else asked
    return f"{_PREFIXES[api]}-{own}" if api != RESPONSES else f"resp_{own}"


def vllm_shape(job: Job, model: str, id: str, body: Mapping[str, object]) -> Shape:
    """Make the shape of an answer to a body, which may ask for the token ids of the prompt and the answer."""
    match job.api:
        case "responses":
            told = {name: body.get(name, usual) for name, usual in _SAMPLING.items()}
            made = VllmResponses(model, job.limit, {**told, "instructions": body.get("instructions")})
            made.id = id
            return made
        case "messages":
            return VllmMessages(model, id)
        case _:
            extras = _CHAT if job.chat else _COMPLETION
            shown = job if body.get("return_token_ids") is True else None
            return VllmOpenAI(job.chat, model, job.asked, job.choices, extras, id, shown)


@define(eq=False)
class VllmOpenAI(OpenAIShape):
    """The answers of completions and chat, whose last text comes with the finish reason."""

    shown: Job | None = None

    @property
    def finish_with_text(self) -> bool:
        """Whether the finish reason comes with the last text."""
        return True

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer, with the prompt's token ids in it if they were asked for."""
        made = super().whole(choices, counts)
        ids = {"prompt_token_ids": self.shown.prompts[0]} if self.shown and self.chat else {}
        return {**made, "service_tier": None, "system_fingerprint": FINGERPRINT, **ids}

    def choice(self, index: int, choice: Choice) -> dict[str, object]:
        """Make one choice of a whole answer."""
        made = super().choice(index, choice)
        if self.shown is None:
            return made
        prompt = self.shown.prompts[index // self.shown.choices]
        return {**made, "token_ids": choice.tokens, **({} if self.chat else {"prompt_token_ids": prompt})}

    def closing(self, choices: list[Choice], counts: Counts) -> Iterator[bytes]:
        """Make the chunk without choices that carries the usage, if it was asked for."""
        del choices
        if self.asked.usage:
            chunk = {**self.head(self.chunk_object), "choices": [], "usage": self.last_usage(counts)}
            yield event({**chunk, "system_fingerprint": FINGERPRINT})

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage of a whole answer."""
        return {
            **self._totals(counts),
            "prompt_tokens_details": {**self._details(counts), "multimodal_tokens": None},
            "completion_tokens_details": None,
        }

    def running_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage that comes with each chunk."""
        return {**self._totals(counts), "completion_tokens_details": None}

    def last_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage in the last chunk."""
        details = {key: value for key, value in self._details(counts).items() if value is not None}
        return {**self._totals(counts), "prompt_tokens_details": details}

    def role_chunk(self, index: int, counts: Counts) -> dict[str, object]:
        """Make the chunk that opens a choice of a chat."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        usage = {"usage": self.running_usage(counts)} if self.asked.continuous else {}
        return {
            **self.head(self.chunk_object),
            "choices": [choice],
            **usage,
            "prompt_token_ids": None,
            "prompt_text": None,
        }

    def chunk(self, index: int, shown: Mapping[str, object], ended: Piece | None) -> dict[str, object]:
        """Make a chunk of one choice; the last one says more than the others."""
        finished = ended is not None and ended.finish_reason is not None
        choice = {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": ended.finish_reason if ended else None,
            **({"stop_reason": ended.stop_reason if ended else None} if finished or not self.chat else {}),
            **({} if self.chat else {"prompt_token_ids": None}),
            "token_ids": None,
        }
        made = {**self.head(self.chunk_object), "choices": [choice]}
        last = {} if self.asked.usage or not self.chat else {"system_fingerprint": FINGERPRINT}
        return {**made, **last, **self.extra} if finished else made

    def _totals(self, counts: Counts) -> dict[str, object]:
        return {
            "prompt_tokens": counts.prompt,
            "total_tokens": counts.prompt + counts.completion,
            "completion_tokens": counts.completion,
        }

    def _details(self, counts: Counts) -> dict[str, object]:
        return {"cached_tokens": counts.cached, "created_cache_tokens": counts.created if self.chat else None}
