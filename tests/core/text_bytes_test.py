"""Texts as bytes of UTF-8."""

from __future__ import annotations

import pytest

from motif_jax.core import text_bytes


@pytest.mark.parametrize("text", ["", "plain", "you can’t", "你赢了", "Ты умер!", "🔑", "naïve ß"])
def test_texts_of_any_script_come_back(text):
    assert text_bytes.decode(text_bytes.encode(text)) == text


def test_bytes_that_are_no_utf8_are_letters_of_latin_1():
    assert text_bytes.decode(b"caf\xe9") == "café"


def test_half_a_surrogate_becomes_the_replacement_character():
    assert text_bytes.encode("\ud83d\ude00 \ud83d") == "😀 \ufffd".encode()


@pytest.mark.parametrize("text", ["你赢了你输了", "aé🔑’b", "🔑🔑🔑"])
def test_a_cut_falls_between_characters(text):
    data = text.encode()
    for size in range(len(data) + 2):
        cut = text_bytes.cut(data, size)
        assert len(cut) <= size
        assert text.startswith(cut.decode())
        assert len(cut) > size - 4 or cut == data


def test_invalid_utf8_is_cut_at_the_limit():
    assert text_bytes.cut(b"\xe9" * 9, 4) == b"\xe9" * 4
    assert text_bytes.cut(b"\x80" * 9, 5) == b"\x80" * 5


def test_rows_hold_the_texts_and_cut_longer_ones():
    rows = text_bytes.padded_rows(["key", "é" * 200, ""], 9)

    assert [bytes(row) for row in rows] == [b"key" + b"\0" * 6, "éééé".encode() + b"\0", b"\0" * 9]
    assert text_bytes.padded_rows([], 9).shape == (0, 9)
