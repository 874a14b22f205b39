"""The outcomes whose timelines are pinned: every way in which a request can end."""

from tests.timeline.world import Story, chat

FAULTY = "  timeline_faulty: {{config: {{mode: {}}}}}"
TOO_LONG = "x" * 1100
BUSY = {"error": {"message": "busy", "type": "overloaded", "param": None, "code": "busy"}}
RESPONSES = "/v1/responses"
COUNT = "/v1/messages/count_tokens"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
RESPONSE = {"model": "stub", "input": "Say hello", "max_output_tokens": 4}
SEARCH = [{"type": "web_search_20250305", "name": "web_search"}]
SLOW = ("both", "slow", {"seconds": 0.2})
SLOW_CONTEXT = ("context", "slow", {"seconds": 0.6})
EARLY = "  early_start: {config: {after_seconds: 0.2, interval_seconds: 60}}"

STORIES = (
    Story("chat", body=chat()),
    Story("chat_streamed", body=chat(stream=True)),
    Story("completion", "/v1/completions", body={"model": "stub", "prompt": "Say hello", "max_tokens": 4}),
    Story("models", "/v1/models", "GET", body=b""),
    Story("pair", body=chat("pair")),
    Story("pair_streamed", body=chat("pair", stream=True)),
    Story("pair_identity", body=chat("pair"), headers={"x-session-id": "s-1"}),
    Story("responses", RESPONSES, body={"model": "pair", "input": "Say hello", "max_output_tokens": 4}),
    Story(
        "responses_broken",
        RESPONSES,
        body={"model": "pair", "input": "Say hello", "max_output_tokens": 4, "stream": True},
        faults=[("generation", "cut_mid_event", {"after": 4})],
    ),
    Story("responses_without_store", RESPONSES, body={"model": "pair", "previous_response_id": "resp_1"}),
    Story("tokens_counted", COUNT, body=chat("pair")),
    Story("one_model", "/v1/models/pair", "GET", body=b""),
    Story("no_such_model", "/v1/models/a/b", "GET", body=b"", headers={"anthropic-version": "2023-06-01"}),
    Story("unknown_model", body=chat("other")),
    Story("no_json", body=b"{"),
    Story("no_model", body={"messages": []}),
    Story(
        "too_large", body=b'{"model": "' + b"x" * 64 + b'"}', plugins="  parse_request: {config: {max_body_bytes: 64}}"
    ),
    Story("template_refused", body=chat(chat_template="{{ 1 }}")),
    Story("identity_refused", body=chat(), headers={"x-session-id": TOO_LONG}),
    Story("template_and_identity_refused", body=chat(chat_template="x"), headers={"x-session-id": TOO_LONG}),
    Story("worker_declines", body=chat(), faults=[("both", "status", {"status": 429, "body": BUSY})]),
    Story("worker_fails", body=chat(), faults=[("both", "status", {"status": 500, "body": "secret"})]),
    Story("worker_fails_streamed", body=chat(stream=True), faults=[("both", "status", {"status": 500})]),
    Story("worker_is_down", body=chat(), down=["both"]),
    Story("worker_dies_before_answer", body=chat(), faults=[("both", "die_before_headers", {"times": -1})]),
    Story("worker_dies_in_stream", body=chat(stream=True), faults=[("both", "cut_mid_event", {"after": 2})]),
    Story("worker_ends_early", body=chat(stream=True), faults=[("both", "end_without_done", {})]),
    Story("worker_errs_in_stream", body=chat(stream=True), faults=[("both", "error_event", {"after": 2})]),
    Story("context_declines", body=chat("pair"), faults=[("context", "status", {"status": 400, "body": BUSY})]),
    Story("context_gives_no_handoff", body=chat("pair"), faults=[("context", "no_handoff", {})]),
    Story(
        "generation_dies",
        body=chat("pair", stream=True),
        faults=[("generation", "die_before_headers", {"times": -1})],
        keeps_blocks=True,
    ),
    Story("client_leaves_before_answer", body=chat(), faults=[("both", "hang", {})], leave="worker both"),
    Story("client_leaves_in_context", body=chat("pair"), faults=[("context", "hang", {})], leave="worker context"),
    Story("client_leaves_in_stream", body=chat(stream=True, max_tokens=64), faults=[SLOW], leave="client gets first"),
    Story("stopped_before_answer", body=chat(), faults=[("both", "hang", {})], shutdown="worker both"),
    Story("stopped_in_stream", body=chat(stream=True, max_tokens=64), faults=[SLOW], shutdown="client gets first"),
    Story(
        "deadline_before_answer",
        body=chat("pair"),
        headers={"x-request-timeout": "0.3"},
        faults=[("context", "hang", {})],
    ),
    Story(
        "deadline_in_stream",
        body=chat(stream=True, max_tokens=64),
        plugins="  deadline: {config: {seconds: 0.7}}",
        faults=[SLOW],
    ),
    Story("deadline_refused", body=chat(), headers={"grpc-timeout": "soon"}),
    Story("early_start", MESSAGES, body=chat("pair", stream=True), plugins=EARLY, faults=[SLOW_CONTEXT]),
    Story(
        "early_start_then_failure",
        body=chat("pair", stream=True),
        plugins=EARLY,
        faults=[SLOW_CONTEXT, ("generation", "status", {"status": 400, "body": BUSY})],
        keeps_blocks=True,
    ),
    Story(
        "early_start_left",
        body=chat("pair", stream=True),
        plugins=EARLY,
        faults=[("context", "hang", {})],
        leave="client gets first",
    ),
    Story("messages_over_chat", MESSAGES, body=chat()),
    Story("messages_over_chat_streamed", MESSAGES, body=chat(stream=True)),
    Story("messages_untranslatable", MESSAGES, body=chat(tools=SEARCH)),
    Story("messages_worker_ends_early", MESSAGES, body=chat(stream=True), faults=[("both", "end_without_done", {})]),
    Story("responses_over_chat", RESPONSES, body=RESPONSE),
    Story("responses_over_chat_streamed", RESPONSES, body=RESPONSE | {"stream": True}),
    Story("plugin_raises", body=chat(), plugins=FAULTY.format("raise")),
    Story("reply_cannot_be_encoded", body=chat(), plugins=FAULTY.format("unserializable")),
)
