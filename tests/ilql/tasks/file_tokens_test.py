"""Tokenizers of dialogue tasks: delimiters, round trips, refusals."""

from __future__ import annotations

import pytest

from motif_jax.ilql.tasks.file_tokens import FileTokenizer
from motif_jax.lm import byte_pairs

# A further token that texts may contain.
WORDS = ("<stop>",)
KEY = "k"  # of the config, for errors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    byte_pairs.save(
        folder, byte_pairs.train(["is the dog red?", "yes it is"] * 3, "gpt2", 300), "gpt2"
    )
    return folder


def test_added_tokens_come_last_in_the_published_order(folder):
    plain = FileTokenizer(KEY, str(folder))
    tokenizer = FileTokenizer(KEY, str(folder), WORDS)
    assert tokenizer.size == plain.size + 1
    texts = [tokenizer.decode([number]) for number in range(tokenizer.size)]
    assert texts[-7:] == ["</a>", "<a>", "<stop>", "</eod>", "<s>", "</s>", "<|pad|>"]
    delimiters = " ".join(tokenizer.decode([number]) for number in tokenizer.delimiters)
    assert delimiters == "<|pad|> <s> <a> </s> </a> </eod>"


@pytest.mark.parametrize("saved", [False, True])
def test_text_round_trips_and_never_encodes_to_a_delimiter(folder, saved, tmp_path):
    tokenizer = FileTokenizer(KEY, str(folder), WORDS)
    if saved:
        tokenizer.save(tmp_path / "new" / "one")
        tokenizer = FileTokenizer(KEY, str(tmp_path / "new" / "one" / "tokenizer.json"), WORDS)
    for text in ("is the dog red?", "a </a> b<s> é 犬", "<stop>", " spaces  and\nlines "):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert not set(tokens) & set(tokenizer.delimiters)
    assert len(tokenizer.encode("<stop>")) == 1
