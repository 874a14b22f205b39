"""SGLang's own API: a text or token ids in, a text and much about it out."""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from plugins.dispatch.embedded.stub.engines.job import Job, read_job
from plugins.dispatch.embedded.stub.engines.prompts import Prompt, read_texts
from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape, event
from plugins.dispatch.embedded.stub.text import Piece

GENERATE = "generate"


def read_generate(body: Mapping[str, Any]) -> Job:
    """Read a request for one answer to one prompt; `ValueError` for anything else."""
    prompt = body.get("text") if body.get("input_ids") is None else body["input_ids"]
    if prompt is None:
        raise ValueError("text or input_ids is needed")
    sampling = body.get("sampling_params") or {}
    options = {**sampling, "stream": body.get("stream"), "max_tokens": sampling.get("max_new_tokens")}
    job = read_job(options, read_texts(prompt), GENERATE, limits=("max_tokens",), least=0)
    if job.choices > 1:
        raise ValueError("this worker gives one answer to a request of this API")
    return job


@define(eq=False)
class GenerateShape(Shape):
    """The answers of the engine's own API, whose events repeat all of the text so far.

    `known` are the tokens of the prompt whose probabilities are told; None tells no probabilities.
    """

    id: str
    known: Prompt | None = None
    _choice: Choice = field(factory=Choice, init=False)

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""
        return self._show(choices[0], counts)

    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the event of a token."""
        del index
        self._choice.add(piece)
        yield event(self._show(self._choice, counts))

    def failure(self, payload: object) -> bytes | None:
        """Make the events of an error after the stream has begun."""
        return super().failure({"error": payload})

    def _show(self, choice: Choice, counts: Counts) -> dict[str, object]:
        reason = choice.finish_reason
        meta: dict[str, object] = {
            "id": self.id,
            "finish_reason": {"type": reason, "length": len(choice.tokens)} if reason else None,
            "prompt_tokens": counts.prompt,
            "completion_tokens": len(choice.tokens),
            "cached_tokens": counts.cached,
            "weight_version": "default",
        }
        if self.known is not None:
            meta["input_token_logprobs"] = [[_logprob(token), token, None] for token in self.known]
            meta["output_token_logprobs"] = [[_logprob(token), token, None] for token in choice.tokens]
        return {"text": choice.text, "output_ids": choice.tokens, "meta_info": meta}


def _logprob(token: int) -> float:
    return -(token % 97) / 16
