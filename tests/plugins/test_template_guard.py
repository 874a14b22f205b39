"""The promise of `template_guard`: no request brings a chat template to a worker, however it is spelled."""

import orjson
import pytest

from kernel import Endpoint, Exchange, Rejection
from kernel.testing import build_exchange, run_chain
from plugins.endpoints import CHAT_COMPLETIONS, ENDPOINTS, MODELS
from plugins.slots import PAYLOAD
from plugins.template_guard import TemplateGuard
from tests.plugins.support import chat, parsed

pytestmark = pytest.mark.anyio

TEMPLATE = '"{{ 1 }}"'
PREFIX = '{ "model":"m","messages":[{"role":"user","content":"hi"}],"prompt":"hi",'
NAMES = ("chat_template", "CHAT_TEMPLATE", "Chat_Template", "chat\\u005ftemplate", "\\u0063hat_templat\\u0065")
ARGUMENTS = (
    "chat_template_kwargs",
    "chat_template_args",
    "Chat_Template_KWARGS",
    "chat_templat\\u0065_args",
    "chat_template_\u212awargs",
    "chat_template_kwarg\u017f",
)
WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"]
SPOTS = ("{name}", "arguments.{name}", "arguments.a.b.{name}", "arguments.list.{name}")


def body_at(spot: str, name: str, argument: str = "chat_template_kwargs", value: str = TEMPLATE) -> bytes:
    """A request with `name` at a spot."""
    member = f'"{name}":{value}'
    places = {
        "{name}": member,
        "arguments.{name}": f'"{argument}":{{"enable_thinking":true,{member}}}',
        "arguments.a.b.{name}": f'"{argument}":{{"a":{{"b":{{{member}}}}}}}',
        "arguments.list.{name}": f'"{argument}":{{"a":[1,[{{{member}}}]]}}',
    }
    return f"{PREFIX}{places[spot]}}}".encode()


async def refused(exchange: Exchange) -> Rejection:
    """The rejection of a request that must not pass."""
    with pytest.raises(Rejection) as raised:
        await run_chain([TemplateGuard()], exchange)
    return raised.value


async def sent(raw: bytes, endpoint: Endpoint = CHAT_COMPLETIONS) -> bytes:
    """What a worker is sent of a request that must pass."""
    exchange = parsed(raw, endpoint=endpoint)
    await run_chain([TemplateGuard()], exchange)
    return exchange[PAYLOAD].encode()


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("spot", SPOTS)
@pytest.mark.parametrize("name", NAMES)
async def test_template_is_refused(endpoint: Endpoint, spot: str, name: str) -> None:
    """On every API, at the top and inside the arguments, in every case of letters and in escapes."""
    rejection = await refused(parsed(body_at(spot, name), endpoint=endpoint))

    assert rejection.status == 400
    assert rejection.code == "chat_template_refused"
    assert rejection.param in {"chat_template", "chat_template_kwargs.chat_template"}


@pytest.mark.parametrize("argument", ARGUMENTS)
async def test_every_name_of_the_arguments_is_known(argument: str) -> None:
    """Both names of the arguments are looked into, in every case of letters, other alphabets' too."""
    rejection = await refused(parsed(body_at("arguments.{name}", "chat_template", argument)))

    assert rejection.param in {"chat_template_kwargs.chat_template", "chat_template_args.chat_template"}


@pytest.mark.parametrize("value", ['""', "0", "false", "[]", "{}", '{"default":"x"}'])
async def test_any_value_but_null_is_a_template(value: str) -> None:
    """What a worker makes of an empty or odd template is not left to it."""
    await refused(parsed(body_at("{name}", "chat_template", value=value)))


async def test_message_repeats_nothing_of_the_request() -> None:
    """The rejection names the field in its usual spelling and shows no value."""
    rejection = await refused(parsed(body_at("{name}", "CHAT_TEMPLATE", value='"secret"')))

    assert "secret" not in rejection.message
    assert rejection.param == "chat_template"


@pytest.mark.parametrize(
    "raw",
    [
        f'{PREFIX}"chat_template":{TEMPLATE},"chat_template":null}}',
        f'{PREFIX}"chat_template":{TEMPLATE},"chat\\u005ftemplate":null}}',
        f'{PREFIX}"CHAT_TEMPLATE":{TEMPLATE},"CHAT_TEMPLATE":null}}',
        f'{PREFIX}"chat_template_kwargs":{{"chat_template":{TEMPLATE}}},"chat_template_kwargs":{{}}}}',
        f'{PREFIX}"chat_template_kwargs":{{"chat_template":{TEMPLATE},"chat_template":null}}}}',
        f'{PREFIX}"chat_template_args":{{"chat_template":{TEMPLATE}}},"chat_template_\\u0061rgs":1}}',
        f'{PREFIX}"chat_template_\u212awargs":{{"chat_template":{TEMPLATE}}},"chat_template_\\u212awargs":1}}',
    ],
)
@pytest.mark.parametrize("endpoint", WITH_BODY, ids=lambda endpoint: endpoint.path)
async def test_key_given_twice_hides_nothing(raw: str, endpoint: Endpoint) -> None:
    """Of a key that comes twice the last one counts, and it alone is sent."""
    left = await sent(raw.encode(), endpoint)

    assert b"{{" not in left
    assert orjson.loads(left) == orjson.loads(raw)


@pytest.mark.parametrize(
    "member",
    [
        '"chat_template":null',
        '"chat_template_kwargs":{"enable_thinking":false}',
        '"chat_template_kwargs":{"chat_template":null}',
        '"chat_template_kwargs":{"note":"a\\n\\"b\\""},"chat_template_args":{}',
        '"chat_template_kwargs":null',
        '"chat_template_content_format":"string"',
        '"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"chat_template":{}}}}}]',
        '"metadata":{"chat_template":"x"}',
        '"user":"chat_template"',
        '"user":"caf\\u00e9"',
        '"seed":12345678901234567890123',
    ],
)
async def test_ordinary_bytes_pass_untouched(member: str) -> None:
    """Arguments without a template, and the name where it names none, leave the client's bytes as they are."""
    raw = f"{PREFIX}{member}}}".encode()

    assert await sent(raw) == raw


async def test_arguments_with_escapes_are_sent_as_they_were_checked() -> None:
    """Escapes may spell a hidden key, so a body with both is written anew, with the same meaning."""
    raw = f'{PREFIX}"chat_template_kwargs":{{"a":1}},"user":"caf\\u00e9"}}'.encode()

    assert await sent(raw) != raw
    assert orjson.loads(await sent(raw)) == orjson.loads(raw)


async def test_deep_arguments_are_looked_through() -> None:
    """A template is found at any depth that can be parsed."""
    raw = f'{PREFIX}"chat_template_kwargs":{"[" * 900}{{"chat_template":1}}{"]" * 900}}}'.encode()

    assert (await refused(parsed(raw))).code == "chat_template_refused"


async def test_body_that_must_be_written_anew_but_cannot_is_a_bad_request() -> None:
    """JSON is read more deeply than it is written: that is the client's fault, not the server's."""
    raw = f'{PREFIX}"chat_template_kwargs":{{}},"chat_template_kwargs":{"[" * 900}{"]" * 900}}}'.encode()

    with pytest.raises(Rejection, match="nested too deeply") as raised:
        await sent(raw)

    assert raised.value.status == 400


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("spot", SPOTS)
async def test_operator_can_allow_templates(endpoint: Endpoint, spot: str) -> None:
    """With `allow` everything passes unchanged."""
    raw = body_at(spot, "chat_template")
    exchange = parsed(raw, endpoint=endpoint)

    await run_chain([TemplateGuard(allow=True)], exchange)

    assert exchange[PAYLOAD].encode() == raw


async def test_other_endpoints_pass() -> None:
    """A request without a body has no template."""
    await run_chain([TemplateGuard()], build_exchange(MODELS))


async def test_what_a_plugin_edited_is_what_is_checked() -> None:
    """A template in the edited data is refused even if the client's bytes have none."""
    exchange = parsed(chat())
    exchange[PAYLOAD].edit()["chat_template"] = "x"

    await refused(exchange)
