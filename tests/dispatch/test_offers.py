"""A request over an API that its workers lack: translated where a plugin offers it, else declined, or estimated."""

import json
from typing import Any

import orjson
import pytest
from attrs import define, field

from kernel import BytesReply, Endpoint, Exchange, StreamReply
from kernel.testing import read_reply, run_chain
from plugins.dispatch.embedded.stub import run_stub
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, COUNT_TOKENS, MESSAGES, RESPONSES
from plugins.slots import OFFER, SERVED, TRANSLATED, InvalidRequest, Payload, Translation
from tests.dispatch.engines.apis import BODIES, EVERYTHING, alone
from tests.dispatch.engines.pairs import WORDS, pair_of
from tests.dispatch.scripted import Seen, answer_ok, scripted
from tests.dispatch.support import ask, exchange_of, running, single
from tests.stub.pairs import text_of

pytestmark = pytest.mark.anyio

LACKING = OpenAIEngine(apis=("completions", "chat_completions"))


@define(eq=False)
class Offer:
    """What a plugin that translates would leave in an exchange; counts how often it is taken."""

    data: dict[str, Any]
    endpoint: Endpoint = CHAT_COMPLETIONS
    taken: int = field(default=0, init=False)

    def translate(self) -> Payload:
        """The payload in the other API."""
        self.taken += 1
        return Payload(orjson.dumps(self.data), self.data)

    def leave(self, endpoint: Endpoint, **extra: Any) -> Exchange:
        """A request over an endpoint with the offer in it."""
        body = {**BODIES.get(endpoint, BODIES[MESSAGES]), **extra}
        exchange = exchange_of(orjson.dumps(body), endpoint=endpoint)
        exchange[OFFER] = Translation(self.endpoint, self.translate)
        return exchange


@pytest.mark.parametrize("stream", [False, True])
async def test_workers_of_a_pair_are_asked_over_the_offered_api(stream: bool) -> None:
    """Both of them, cleaned of what the translation may have carried over; the answer speaks that API."""
    asked = {**BODIES[CHAT_COMPLETIONS], "stream": stream}
    offer = Offer({**asked, "model": "other", "disaggregated_params": {"ctx_info_endpoint": "203.0.113.9"}})
    exchange = offer.leave(MESSAGES, stream=stream)
    async with pair_of(TrtllmEngine()) as pair:
        answer = await ask(pair.dispatch, exchange)
        for stub in pair.stubs:
            (received,) = [received for received in stub.state().last_requests if received.is_work]
            assert received.path == CHAT_COMPLETIONS.path
            assert "203.0.113.9" not in str(received.body)
        await pair.settled()
    assert text_of(answer.body) == text_of((await alone("trtllm", CHAT_COMPLETIONS, asked)).body) != ""
    taken = exchange[TRANSLATED]
    assert (taken.endpoint, offer.taken) == (CHAT_COMPLETIONS, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_ends_early_speaks_the_offered_api(stream: bool) -> None:
    """In bytes, as every other answer: the plugin that translates back knows nothing else."""
    data = {"model": "m", "messages": [{"role": "user", "content": "a [ends-in-context]"}], "stream": stream}
    async with pair_of(TrtllmEngine()) as pair:
        exchange = Offer(data).leave(MESSAGES, stream=stream)
        reply = await run_chain([pair.dispatch], exchange)
        assert isinstance(reply, StreamReply if stream else BytesReply)
        answer = (await read_reply(reply, exchange)).body
        assert answer.endswith(b"data: [DONE]\n\n") is stream
        assert text_of(answer)
        assert pair.generation.state().requests == 0
        await pair.settled()


@pytest.mark.parametrize("endpoint", [MESSAGES, RESPONSES])
async def test_workers_that_have_the_api_are_asked_over_it(endpoint: Endpoint) -> None:
    """The offer is not even looked at, and the client's bytes go as they are."""
    offer = Offer({})
    async with scripted(answer_ok) as worker, running(single(worker.url, engine=EVERYTHING)) as dispatch:
        exchange = offer.leave(endpoint)
        await ask(dispatch, exchange)
        assert worker.seen[0].line == f"POST {endpoint.path} HTTP/1.1"
        assert worker.seen[0].body == orjson.dumps(BODIES[endpoint])
    assert exchange.get(TRANSLATED) is None
    assert offer.taken == 0


@pytest.mark.parametrize("endpoint", [MESSAGES, RESPONSES])
@pytest.mark.parametrize("offered", [None, CHAT_COMPLETIONS])
async def test_without_an_offer_that_helps_the_request_is_declined(
    endpoint: Endpoint, offered: Endpoint | None
) -> None:
    """The request is declined with the API's name, and without a worker being asked; the model is known to metrics."""
    offer = Offer({}, CHAT_COMPLETIONS)
    async with (
        scripted(answer_ok) as worker,
        running(single(worker.url, engine=OpenAIEngine(apis=("completions",)))) as dispatch,
    ):
        exchange = offer.leave(endpoint) if offered else exchange_of(orjson.dumps(BODIES[endpoint]), endpoint=endpoint)
        error = (await ask(dispatch, exchange)).error
        assert worker.seen == []
    assert (error.status, error.code, error.kind) == (404, "api_not_served", "invalid_request_error")
    assert endpoint.path in error.message
    assert offer.taken == 0
    assert exchange[SERVED].model == "m"


async def test_what_cannot_be_translated_says_why() -> None:
    """The plugin's reason is the client's."""

    def refuse() -> Payload:
        raise InvalidRequest(400, "no such block", "unsupported")

    async with scripted(answer_ok) as worker, running(single(worker.url, engine=LACKING)) as dispatch:
        exchange = exchange_of(orjson.dumps(BODIES[MESSAGES]), endpoint=MESSAGES)
        exchange[OFFER] = Translation(CHAT_COMPLETIONS, refuse)
        error = (await ask(dispatch, exchange)).error
        assert (error.status, error.message, worker.seen) == (400, "no such block", [])
    assert exchange.get(TRANSLATED) is None


COUNTED = {"model": "m", "system": [{"type": "text", "text": "be brief"}], "messages": BODIES[MESSAGES]["messages"]}


def counting(**fields: Any) -> Exchange:
    """A request to count tokens."""
    return exchange_of(orjson.dumps({**COUNTED, **fields}), endpoint=COUNT_TOKENS)


@pytest.mark.parametrize("offered", [False, True])
async def test_tokens_are_counted_by_the_tokenizer_of_workers_that_do_not_count(offered: bool) -> None:
    """Exactly, over the chat that the request would become."""
    engine = OpenAIEngine(apis=("completions", "chat_completions", "tokenize"))
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": WORDS}]
    async with run_stub("vllm", model="m") as stub, running(single(stub.url, engine=engine)) as dispatch:
        exchange = counting()
        if offered:
            exchange[OFFER] = Translation(CHAT_COMPLETIONS, Offer({"messages": chat, "stream": True}).translate)
        answer = await ask(dispatch, exchange)
        (sent,) = [received.body for received in stub.state().last_requests if received.path == "/tokenize"]
    assert sent == {"model": "m", "messages": chat, "add_generation_prompt": True}
    native = await alone("vllm", COUNT_TOKENS, COUNTED)
    assert answer.json == {"input_tokens": native.json["input_tokens"]}
    assert exchange.get(TRANSLATED) is None


@pytest.mark.parametrize("said", [b'{"tokens":[]}', b"[]", b"{x}", b'{"count":"7"}', None, "gone"])
async def test_tokens_are_estimated_where_nobody_counts(said: object) -> None:
    """A client that asks is better served with a guess than with an error; the answer says that it is one."""

    async def answer(seen: Seen) -> None:
        await (seen.answer(said) if isinstance(said, bytes) else seen.answer(b"", "404 Not Found"))

    engine = OpenAIEngine(apis=("completions", "chat_completions", "tokenize"))
    async with scripted(answer) as worker, running(single(worker.url, engine=engine)) as dispatch:
        if said == "gone":
            await worker.stop()
        counted = (await ask(dispatch, counting())).json
        more = (await ask(dispatch, counting(tools=[{"name": "f", "input_schema": {"type": "object"}}]))).json
        if said == "gone":
            await worker.start()
    assert counted["estimated"] is True
    assert 70 <= counted["input_tokens"] <= 300
    assert more["input_tokens"] > counted["input_tokens"]


async def test_what_cannot_be_translated_is_counted_by_guess() -> None:
    """Nothing was asked to be done with it."""

    def refuse() -> Payload:
        raise InvalidRequest(400, "no such block", "unsupported")

    engine = OpenAIEngine(apis=("completions", "chat_completions", "tokenize"))
    async with scripted(answer_ok) as worker, running(single(worker.url, engine=engine)) as dispatch:
        exchange = counting()
        exchange[OFFER] = Translation(CHAT_COMPLETIONS, refuse)
        assert (await ask(dispatch, exchange)).json["estimated"] is True
        assert worker.seen == []


async def test_files_are_no_words() -> None:
    """Of an image nothing is sent to a tokenizer; calls and results are told in JSON."""
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, image, {"type": "tool_result", "content": "7"}]}
    ]
    engine = OpenAIEngine(apis=("completions", "tokenize"))
    async with scripted(answer_ok) as worker, running(single(worker.url, engine=engine)) as dispatch:
        assert (await ask(dispatch, counting(messages=said))).json["estimated"] is True
        sent = orjson.loads(worker.seen[0].body)["messages"]
    assert sent[1] == {"role": "user", "content": 'see\n{"type":"tool_result","content":"7"}'}


DEEP: Any = orjson.loads(b"[" * 900 + b"]" * 900)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}, {}, {"text": None}]}]}, 200),
        ({"system": [{"type": "text"}], "messages": [{"role": "user", "content": []}]}, 200),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "input": DEEP}]}]}, 200),
        ({"tools": [{"input_schema": DEEP}]}, 400),
        ({"messages": [{"role": "user", "content": "word " * 200_000}]}, 200),
    ],
)
async def test_a_strange_prompt_is_counted_or_declined(fields: dict[str, Any], status: int) -> None:
    """It is never a fault of the kernel."""
    engine = OpenAIEngine(apis=("completions", "chat_completions", "tokenize"))
    raw = json.dumps({**COUNTED, **fields}).encode()
    async with scripted(answer_ok) as worker, running(single(worker.url, engine=engine)) as dispatch:
        answer = await ask(dispatch, exchange_of(raw, endpoint=COUNT_TOKENS))
    assert (200 if answer.rejection is None else answer.rejection.status) == status
    if status == 200:
        assert answer.json["input_tokens"] >= 1


async def test_a_completion_is_never_offered_elsewhere() -> None:
    """What all engines have goes to workers as it is."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(orjson.dumps(BODIES[COMPLETIONS]), endpoint=COMPLETIONS)
        assert (await ask(dispatch, exchange)).json == {"ok": True}
    assert exchange.get(TRANSLATED) is None
