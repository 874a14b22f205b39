"""A real vLLM pair behind the kernel answers as one worker does, from a KV cache that was handed over."""

import socket

import pytest

from tests.live.pair import ASKED, Expected, Front, Pair
from tests.live.questions import CHAT, COMPLETIONS, Question, events, fresh_prompt
from tests.live.vllm import BLOCK, CONTEXT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.name)
def test_the_answer_is_that_of_one_worker(
    question: Question, served: Front, pair: Pair, expected: dict[str, Expected]
) -> None:
    """Token for token; the generation worker computed nothing of the prompt, and the client learns of no worker."""
    known, before = expected[question.name], pair.counts()
    answer = question.ask(served.url, known.words)
    after = pair.counts()

    assert answer.status_code == 200, answer.text
    assert question.text(answer) == known.text
    assert known.text
    assert after.computed_by_context - before.computed_by_context == known.tokens > 3 * BLOCK
    assert known.tokens - BLOCK < after.fetched - before.fetched <= known.tokens
    assert after.computed_by_generation == before.computed_by_generation
    assert "remote_" not in answer.text
    assert not any(worker.url in answer.text for worker in (pair.context, pair.generation))


def test_a_prompt_that_was_seen_before_is_answered_the_same(served: Front) -> None:
    """What both workers have cached makes no difference, and the client is told how much the context worker had."""
    words = fresh_prompt()
    first, second = (CHAT.ask(served.url, words) for _ in range(2))
    cached = [answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, second)]

    assert CHAT.text(first) == CHAT.text(second)
    assert cached[0] == 0
    assert cached[1] >= 3 * BLOCK


def test_several_answers_to_one_prompt_are_made_without_a_handoff(served: Front, pair: Pair) -> None:
    """Only the first of them would get the KV cache: the generation worker does it all."""
    before = pair.counts()
    answer = CHAT.ask(served.url, fresh_prompt(), n=2, temperature=1)  # vLLM refuses two of what would be the same

    assert answer.status_code == 200, answer.text
    assert [bool(choice["message"]["content"]) for choice in answer.json()["choices"]] == [True, True]
    assert pair.counts().computed_by_context == before.computed_by_context
    assert pair.counts().fetched == before.fetched


@pytest.mark.parametrize("question", [COMPLETIONS, CHAT], ids=lambda question: question.name)
def test_a_handoff_of_the_clients_reaches_no_worker(question: Question, served: Front, pair: Pair) -> None:
    """It would make the generation worker connect to where the client likes, or end it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        place = {"remote_host": "127.0.0.1", "remote_port": listener.getsockname()[1]}
        names = {"remote_engine_id": "mine", "remote_request_id": "mine", "remote_block_ids": [[1, 2, 3]]}
        for params in ({"do_remote_prefill": True}, {"do_remote_prefill": True, **place, **names, "tp_size": 1}):
            words = fresh_prompt()
            before = pair.counts().fetched
            answer = question.ask(served.url, words, kv_transfer_params=params)

            assert answer.status_code == 200
            assert question.text(answer) == question.text(question.ask(served.url, words))
            assert pair.counts().fetched > before
        with pytest.raises(TimeoutError):
            listener.accept()
    assert pair.generation.running()


def test_a_prompt_that_is_too_long_is_refused_with_the_workers_own_words(served: Front, pair: Pair) -> None:
    """The context worker says so; the generation worker hears nothing of it, also if a stream was asked for."""
    before = pair.generation.metric("vllm:prompt_tokens_total")
    for more in ({}, {"stream": True}):
        answer = CHAT.ask(served.url, "word " * CONTEXT, **more)

        assert answer.status_code == 400
        assert f"{CONTEXT} tokens" in answer.json()["error"]["message"]
    assert pair.generation.metric("vllm:prompt_tokens_total") == before


def test_a_stream_counts_its_tokens(served: Front) -> None:
    """The last event has the usage, the one before it the reason of the end."""
    answer = CHAT.ask(served.url, fresh_prompt(), 5, stream=True, stream_options={"include_usage": True})
    *_, last, usage = events(answer)

    assert answer.text.endswith("data: [DONE]\n\n")
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["completion_tokens"] == 5
