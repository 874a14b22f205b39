"""How answers are read whose longest member nobody looks at."""

import orjson
import pytest

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engines.bodies import parse_around


@pytest.mark.parametrize("ids", [b"[1,23,456]", b"[7]", b"[]", b"[1, 2]", b"[1,[2]]", b"null"])
def test_what_is_not_looked_at_is_handed_on(ids: bytes) -> None:
    """What is written is what came."""
    data = parse_around("ids", b'{"a":1,"ids":%b,"b":[2]}' % ids, "context")

    assert orjson.loads(orjson.dumps(data)) == {"a": 1, "ids": orjson.loads(ids), "b": [2]}


@pytest.mark.parametrize("ids", [b"[1,,2]", b"[,1]", b"[1,]", b"[,]", b"[1", b"[1,2]]", b"[1 2]"])
def test_numbers_that_are_no_list(ids: bytes) -> None:
    """They are found here, and not by the worker to which they would be handed."""
    with pytest.raises(MalformedFault):
        parse_around("ids", b'{"a":1,"ids":%b,"b":[2]}' % ids, "context")
