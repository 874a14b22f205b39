"""Calls of tools, logarithms of probabilities and usage are those of one worker, streamed and not."""

import pytest

from tests.live.pair import Front, Pair
from tests.live.questions import Question
from tests.live.subjects import PAIRS, TOOLS, Alone, Subject

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

each = pytest.mark.parametrize(
    ("subject", "question"), PAIRS, ids=[f"{subject.name}, {question.name}" for subject, question in PAIRS]
)


@each
def test_the_details_are_those_of_one_worker(
    subject: Subject, question: Question, served: Front, pair: Pair, alone: Alone
) -> None:
    """From a KV cache that was handed over, and again when both workers have the prompt cached, which usage tells."""
    known, before = alone.details[subject.name, question.name], pair.counts()
    first, again = (subject.ask(question, served.url, known.words) for _ in range(2))
    after = pair.counts()

    assert first.like(known.first), (first, known.first)
    assert again.like(known.again), (again, known.again)
    assert known.first.usage != known.again.usage  # of the second prompt most was cached
    assert after.fetched > before.fetched
    assert after.computed_by_generation == before.computed_by_generation
    if subject is TOOLS:
        assert [name for name, _ in first.calls.values()] == ["get_weather"]
        assert all("city" in arguments for _, arguments in first.calls.values())
    else:
        assert first.text
        assert len(first.logprobs) > len(first.text.split())
