"""What plugins leave for each other: above all the payload, which is the client's bytes until someone edits it."""

import orjson
import pytest

from kernel import Rejection, Slot
from plugins import slots
from plugins.slots import InvalidRequest, Payload, WorkerRejection

DEEP = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"


def test_payload_is_the_clients_bytes() -> None:
    """Until a plugin edits it, what is sent is the very object that came in, whatever its spelling."""
    raw = b'{ "a" : 1.0e0, "a": 12345678901234567890123 }'

    assert Payload(raw, orjson.loads(raw)).encode() is raw


def test_edited_payload_is_its_data() -> None:
    """Once it is edited, the data is sent."""
    payload = Payload(b'{"a":1}', {"a": 1})

    payload.edit()["b"] = "\u2603"

    assert payload.edited
    assert orjson.loads(payload.encode()) == {"a": 1, "b": "\u2603"}


def test_nesting_that_cannot_be_written_is_the_clients_fault() -> None:
    """A client's JSON that is read but cannot be written again is a 400, that is counted as no validation."""
    payload = Payload(DEEP, orjson.loads(DEEP))
    payload.edit()["b"] = 1

    with pytest.raises(Rejection, match="nested too deeply") as refused:
        payload.encode()

    assert refused.value.status == 400
    assert not isinstance(refused.value, InvalidRequest)


@pytest.mark.parametrize("value", [object(), 2**80, "\ud800", {1: 2}, orjson.loads(DEEP)])
def test_what_a_plugin_put_in_is_the_plugins_fault(value: object) -> None:
    """Data that a plugin made impossible to write is a fault, and not blamed on the client."""
    payload = Payload(b'{"a":1}', {"a": 1})
    payload.edit()["b"] = value

    with pytest.raises(orjson.JSONEncodeError):
        payload.encode()


def test_rejections_of_the_api_are_rejections() -> None:
    """Both kinds reach the client, and can be told apart."""
    assert issubclass(InvalidRequest, Rejection)
    assert issubclass(WorkerRejection, Rejection)
    assert not issubclass(InvalidRequest, WorkerRejection)


def test_slots_are_named_after_themselves() -> None:
    """Each slot's name is that of its constant, in lower case, and no two are the same."""
    found = {name: value for name, value in vars(slots).items() if isinstance(value, Slot) and name.isupper()}

    assert {name.lower() for name in found} == {slot.name for slot in found.values()}
    assert found.keys() >= {"PAYLOAD", "MODEL", "STREAM", "CONVERSATION", "TIMING", "SERVED", "TRACE"}
