"""Replies: what plugins attach to a stream, whose it is, and that each outcome is heard once."""

import pytest
from attrs import evolve

from kernel import COMPLETED, FAILED, BytesReply, DataReply, Outcome, StreamReply
from kernel.testing import stream_of


def stream() -> StreamReply:
    """A stream."""
    return StreamReply(stream_of(b"x"))


def test_replies_are_answers_of_200_without_headers() -> None:
    """Unless they say otherwise; no two share a list."""
    first, second = BytesReply(b"a"), BytesReply(b"b")
    assert (first.status, first.headers) == (200, [])
    assert first.headers is not second.headers
    assert DataReply({}).headers is not DataReply({}).headers
    assert stream().headers is not stream().headers
    assert stream().links is not stream().links


def test_a_reply_can_be_changed_on_its_way_out() -> None:
    """Status, headers and body are the chain's to edit."""
    reply = BytesReply(b"a")
    reply.status, reply.body = 201, b"b"
    reply.headers.append((b"x-a", b"1"))
    assert evolve(reply, status=202).headers == [(b"x-a", b"1")]


def test_links_stand_in_the_order_in_which_they_were_attached() -> None:
    """The innermost plugin attaches first."""
    reply = stream()
    reply.attach(step=bytes.upper)
    reply.attach(step=bytes.lower)
    assert [link.step for link in reply.links] == [bytes.upper, bytes.lower]


def test_a_claim_marks_what_nobody_owns() -> None:
    """Links that an inner plugin attached stay that plugin's."""
    reply = stream()
    reply.attach(check=lambda: None)
    reply.claim("inner", fail_open=False)
    reply.claim("between", fail_open=True)
    reply.attach(check=lambda: None)
    reply.attach(check=lambda: None)
    reply.claim("outer", fail_open=True)
    assert reply.owner == "inner"
    assert [(link.owner, link.fail_open) for link in reply.links] == [
        ("inner", False),
        ("outer", True),
        ("outer", True),
    ]


@pytest.mark.parametrize("first", [COMPLETED, FAILED])
def test_every_link_hears_the_outcome_once(first: str) -> None:
    """The first one stands."""
    reply, heard = stream(), list[Outcome]()
    reply.attach(end=heard.append)
    reply.attach()
    reply.attach(end=heard.append)
    outcome = Outcome(first)
    assert reply.finish(outcome) == []
    assert reply.finish(Outcome("other")) == []
    assert heard == [outcome, outcome]
    assert reply.outcome is outcome


def test_an_end_that_raises_is_handed_back() -> None:
    """With its owner; the others hear the outcome."""
    reply, heard, error = stream(), list[Outcome](), ValueError("x")

    def fall(_outcome: Outcome) -> None:
        raise error

    reply.attach(end=fall)
    reply.claim("inner", fail_open=False)
    reply.attach(end=heard.append)
    assert reply.finish(Outcome(COMPLETED)) == [("inner", error)]
    assert len(heard) == 1
