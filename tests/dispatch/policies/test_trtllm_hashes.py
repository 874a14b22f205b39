"""The hashes of TensorRT-LLM: pinned values, and that nothing is remembered wrongly."""

import random
from typing import Any

import pytest

from plugins.dispatch.policies.trtllm_hashes import BlockKeys, conversation_key, salt_id_of, v1_block_key

LOW64 = 2**64 - 1


def mixed(value: int, seed: int) -> int:
    """The mixing of one token, written down as plainly as it is specified."""
    value &= 0xFFFFFFFF
    for _ in range(2):
        value = ((value >> 16) ^ value) * 0x45D9F3B % 2**32
    value = (value >> 16) ^ value
    value = (value + 0x9E3779B9) % 2**32
    return (seed ^ (value + (seed << 6) + (seed >> 2))) & LOW64


def plain(tokens: list[int], parent: int = 0) -> int:
    """The hash of a block, written down as plainly as it is specified."""
    seed = (len(tokens) ^ (parent * 0xBF58476D1CE4E5B9)) & LOW64
    for token in tokens:
        seed = mixed(token, seed)
    return seed


def test_the_salt_has_the_value_of_tensorrt_llm() -> None:
    """The first eight bytes of a BLAKE3 digest."""
    assert salt_id_of("abc") == 3697813978277427044


def test_the_conversation_has_the_value_of_tensorrt_llm() -> None:
    """Of a chat of one message."""
    assert conversation_key({"messages": [{"role": "user", "content": "hello"}]}, None) == 7306401829117098140


def test_a_conversation_is_known_by_two_messages_and_256_token_ids() -> None:
    """What comes behind does not count; roles do not either."""
    two = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    key = conversation_key({"messages": two}, None)
    assert key == conversation_key({"messages": [*two, {"role": "assistant", "content": "c"}]}, None)
    assert key == conversation_key({"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}]}, None)
    assert key != conversation_key({"messages": two[:1]}, None)
    ids = list(range(300))
    assert conversation_key({}, ids) == conversation_key({}, ids[:256]) != conversation_key({}, ids[:255])
    assert conversation_key({"messages": two}, ids) not in (key, conversation_key({}, ids))
    assert conversation_key({}, None) is conversation_key({"messages": [{"content": None}]}, None) is None


@pytest.mark.parametrize("tokens", [[0], [1, 2, 3], [2**31, 2**32 - 1, 2**32 + 5], list(range(64))])
def test_a_block_has_the_value_of_its_formula(tokens: list[int]) -> None:
    """With and without a block before it."""
    assert v1_block_key(tokens) == plain(tokens)
    assert v1_block_key(tokens, 12345678901234567890) == plain(tokens, 12345678901234567890)
    assert 0 <= v1_block_key(tokens, LOW64, lora_id=7) <= LOW64


def test_a_salt_is_in_the_first_block_only() -> None:
    """The others have it through the block before them."""
    salt = salt_id_of("abc")
    assert v1_block_key([1], salt_id=salt) != v1_block_key([1])
    assert v1_block_key([1], 5, salt_id=salt) == v1_block_key([1], 5)
    assert v1_block_key([1], lora_id=1) != v1_block_key([1])


def test_the_last_token_is_left_out_and_the_last_block_may_be_short() -> None:
    """A worker computes the last token in any case."""
    keys = BlockKeys()
    tokens = list(range(10))
    first = plain(tokens[:4])
    second = plain(tokens[4:8], first)
    assert keys.make(tokens, 4) == [first, second, plain(tokens[8:9], second)]
    assert keys.make(tokens[:9], 4) == [first, second]
    assert keys.make(tokens[:1], 4) == keys.make([], 4) == []


def test_what_is_remembered_is_what_would_be_computed() -> None:
    """Prompts that share beginnings, of several sizes and salts, also when old ones are forgotten meanwhile."""
    chance, keys = random.Random(4), BlockKeys(limit=50)
    base = [chance.randrange(1000) for _ in range(200)]
    for _ in range(300):
        tokens = base[: chance.randrange(1, 200)] + [chance.randrange(50) for _ in range(chance.randrange(5))]
        size, salt = chance.choice((4, 8)), chance.choice((None, "a", "b"))
        assert keys.make(tokens, size, salt) == BlockKeys().make(tokens, size, salt)
        assert len(keys._young) + len(keys._old) <= 100


@pytest.mark.parametrize("token", ["x", 1.5, None, [1]])
def test_what_is_no_token_id_has_no_hash(token: Any) -> None:
    """An image in a prompt is not guessed at."""
    with pytest.raises(TypeError):
        BlockKeys().make([1, token, 3, 4], 2)
