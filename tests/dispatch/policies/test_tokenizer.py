"""Token ids of texts, made with the files of a model."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.tokenizer import load_tokenizer
from plugins.dispatch.policy import Match
from tests.dispatch.policies.support import chat, completion, roster_of, send
from tests.dispatch.policies.test_kv_events import give

WORDS = ["<s>", "[UNK]", "user", "assistant", "hello", "world", "tool", *(f"w{number}" for number in range(100))]

TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
    {%- if message['role'] not in ('user', 'assistant') %}
        {{- raise_exception('no such role') }}
    {%- endif %}
{{ message['role'] }} {{ message['content'] }}
{%- endfor %}
{%- if tools %} tool {{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %} assistant{% endif %}
{%- if loud %} world{% endif %}"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A tokenizer of words, and a chat template with its special tokens beside it."""
    library = Library(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    library.pre_tokenizer = Whitespace()
    library.add_special_tokens(["<s>"])
    library.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer, template = tmp_path / "tokenizer.json", tmp_path / "chat_template.jinja"
    library.save(str(tokenizer))
    template.write_text(TEMPLATE)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, "pad_token": None}))
    return tokenizer, template


def words(text: str) -> list[int]:
    """The ids of words."""
    return [WORDS.index(word) for word in text.split()]


def test_a_text_gets_the_ids_that_a_worker_gives_it(files: tuple[Path, Path]) -> None:
    """With the tokens that begin a text, unless the request does not want them."""
    tokenizer = load_tokenizer(files[0])
    assert tokenizer.encode({"prompt": "hello world"}) == words("<s> hello world")
    assert tokenizer.encode({"prompt": ["hello"]}) == words("<s> hello")
    assert tokenizer.encode({"prompt": "hello", "add_special_tokens": False}) == words("hello")
    for data in ({"prompt": ["a", "b"]}, {"prompt": None}, {}, {"messages": [{"role": "user", "content": "hello"}]}):
        assert tokenizer.encode(data) is None


def test_a_chat_is_rendered_first(files: tuple[Path, Path]) -> None:
    """By the model's own template, with its special tokens, tools and options."""
    tokenizer = load_tokenizer(*files)
    messages = [{"role": "user", "content": "hello"}]
    assert tokenizer.encode({"messages": messages}) == words("<s> user hello assistant")
    assert tokenizer.encode({"messages": messages, "add_generation_prompt": False}) == words("<s> user hello")
    loud = {"messages": messages, "chat_template_kwargs": {"loud": True}, "add_special_tokens": True}
    assert tokenizer.encode(loud) == words("<s> <s> user hello assistant world")
    with_tools = tokenizer.encode({"messages": messages, "tools": [{"a": "é<"}]})
    assert with_tools is not None
    assert WORDS.index("tool") in with_tools


@pytest.mark.parametrize(
    "data",
    [
        {"messages": [{"role": "pirate", "content": "x"}]},
        {"messages": [None]},
        {"messages": [{"role": ["user"]}], "tools": 7},
        {"messages": [], "chat_template_kwargs": {"messages": 1}},
        {"messages": [{"role": "user", "content": "x" * 5_000_000}]},
    ],
)
def test_what_cannot_be_rendered_has_no_ids(files: tuple[Path, Path], data: dict[str, Any]) -> None:
    """The worker will say what is wrong with it, if anything is."""
    assert load_tokenizer(*files).encode(data) is None or data["messages"] == [{"role": ["user"]}]


def test_a_template_reaches_nothing(files: tuple[Path, Path]) -> None:
    """It runs where neither Python nor what it is given can be changed."""
    for text in ("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% for i in range(10**9) %}{% endfor %}"):
        files[1].write_text(text)
        assert not load_tokenizer(*files).encode({"messages": [{"role": "user", "content": "x"}]})


@pytest.mark.anyio
async def test_a_chat_finds_its_blocks(files: tuple[Path, Path]) -> None:
    """Tokenised by a thread, before a worker is chosen."""
    policy = KvEvents(tokenizer=files[0], chat_template=files[1], max_sessions=0)
    roster = roster_of(3, policy=policy)
    text = " ".join(f"w{number}" for number in range(100))
    expected = words(f"<s> user {text} assistant")
    numbers = policy._state.preparation.numbering.make(expected, 32)
    give(policy, roster.at(1), 5)
    for number in numbers:
        policy.holding(roster.at(2)).store(number, number)
    for facts, cached, prompt in ((chat(text), 96, 103), (completion(f"user {text}"), 96, 102)):
        preparation = policy.prepare(facts)
        assert preparation is not None
        await preparation
        assert send(policy, roster, facts).worker.index == 2
        assert facts.match == Match(cached, prompt)


def test_files_that_are_none_are_refused(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """When the configuration is read."""
    broken = tmp_path / "broken"
    broken.write_text("{% if %}")
    with pytest.raises(Exception, match="at line 1 column"):  # what the library says is shown as it is
        load_tokenizer(broken)
    with pytest.raises(ValueError, match="chat_template cannot be used"):
        load_tokenizer(files[0], broken)
    with pytest.raises(ValueError, match="chat_template cannot be used"):
        load_tokenizer(files[0], tmp_path / "missing")
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is no JSON object"):
        load_tokenizer(*files)


def test_a_tokenizer_is_read_once_and_again_when_it_changed(files: tuple[Path, Path]) -> None:
    """A reload of the configuration does not read tens of megabytes again."""
    assert load_tokenizer(files[0]).encoder is load_tokenizer(files[0]).encoder
    before = load_tokenizer(files[0]).encoder
    files[0].write_text(files[0].read_text().replace('"world"', '"moon"'))
    assert load_tokenizer(files[0]).encoder is not before


@pytest.mark.parametrize(("missing", "name"), [("tokenizers", "tokenizer"), ("jinja2", "chat_template")])
def test_libraries_that_are_missing_are_named(
    files: tuple[Path, Path], missing: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the extra that brings them."""
    real = builtins.__import__

    def without(module: str, *rest: Any, **options: Any) -> Any:
        if module.partition(".")[0] == missing:
            raise ImportError(module)
        return real(module, *rest, **options)

    files[0].touch()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=f"{name} needs the extra `tokenizer`"):
        load_tokenizer(*files)
