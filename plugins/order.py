"""The standard order: which plugin stands where, and why not one step further out or in."""

from typing import Final

from kernel import OrderLine

STANDARD_ORDER: Final = (
    OrderLine(
        "trace_span",
        "outermost: its span covers every ending, and the log line inside it can carry the trace's id",
    ),
    OrderLine(
        "access_log",
        "outside error_envelope, so that its one line tells the status that the client got, whatever the ending",
    ),
    OrderLine(
        "error_envelope",
        "outside everything that may decline or fail, inside access_log, which logs the answer that it makes",
        required=True,
    ),
    OrderLine(
        "parse_request",
        "inside error_envelope, which answers bad bodies; outside the counters, which count valid requests alone",
        required=True,
    ),
    OrderLine(
        "count_requests",
        "inside parse_request, outside template_guard: a refused template is a request that counts",
    ),
    OrderLine(
        "template_guard",
        "before anything costs: a request that it refuses gets no identity, no queue time and no worker",
    ),
    OrderLine(
        "messages_request",
        "inside template_guard: what is refused needs no offer; outside dispatch, which takes the offer or leaves it",
    ),
    OrderLine(
        "responses_request",
        "beside messages_request and for the same reasons: inside template_guard and outside dispatch",
    ),
    OrderLine(
        "conversation_identity",
        "inside template_guard, outside request_timing and dispatch: a bad identity is declined before any queueing",
    ),
    OrderLine(
        "request_timing",
        "inside all that may decline, so that latencies are those of requests that were dispatched",
    ),
    OrderLine(
        "deadline",
        "inside request_timing, which times what ends too late as well; outside all that its deadline may have to stop",
    ),
    OrderLine(
        "encode_reply",
        "outside count_responses: a reply that cannot be encoded counts as a response and as an internal error",
        required=True,
    ),
    OrderLine(
        "sse_guard",
        "inside encode_reply, outside count_responses: it guards what dispatch streams, in the API's own dialect",
    ),
    OrderLine(
        "early_start",
        "inside sse_guard, which words a late failure; outside the reply translators, which see no sign of life",
    ),
    OrderLine(
        "messages_reply",
        "inside sse_guard, which guards what the client gets; outside count_responses: a bad answer counts too",
    ),
    OrderLine(
        "responses_reply",
        "beside messages_reply and for the same reasons: inside sse_guard and outside count_responses",
    ),
    OrderLine(
        "count_responses",
        "inside encode_reply, outside disconnect_watch: a request whose client left has no response",
    ),
    OrderLine(
        "disconnect_watch",
        "right around dispatch: it stops the work for a client that left, and nothing further out",
    ),
    OrderLine(
        "dispatch",
        "innermost: it asks the workers, and calls no further",
        required=True,
    ),
)
