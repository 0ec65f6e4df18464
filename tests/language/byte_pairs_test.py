"""Tokenizers that are made from texts."""

from __future__ import annotations

from motif_jax.language import byte_pairs


def test_a_text_with_an_endless_word_or_blank_is_learned_from_in_pieces() -> None:
    texts = ["a b", "", "x" * 2500, "a" + " " * 1000]
    pieces = list(byte_pairs._short_words(texts))
    assert max(map(len, pieces)) == 1000
    assert pieces[0] == "a b"
    assert "".join(pieces) == "".join(texts)
