"""Secrets in logs."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.masking import Masker, mask_bytes


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(0, 40))
def test_a_secret_is_masked_wherever_the_chunks_are_cut(noise: list[bytes], cut: int) -> None:
    secret = "s3cr3t-value"
    text = b"a" + secret.encode() + b"|".join(noise) + secret.encode()
    chunks = [text[:cut], text[cut : cut + 3], text[cut + 3 :]]
    masked = b"".join(Masker([secret]).apply(chunks))
    assert len(masked) == len(text)
    assert secret.encode() not in masked
    assert masked == mask_bytes(text, [secret])


def test_a_secret_inside_json_or_a_dictionary_is_masked_too() -> None:
    secret = 'pass"word\\1'
    for text in (secret, json.dumps({"key": secret}), repr({"key": secret})):
        assert b"word" not in mask_bytes(text.encode(), [secret])


def test_short_values_are_left_alone_and_long_ones_win() -> None:
    assert mask_bytes(b"yes 1", ["yes", "1"]) == b"yes 1"
    assert mask_bytes(b"abcdefgh", ["abcdef", "abcdefgh"]) == b"********"
