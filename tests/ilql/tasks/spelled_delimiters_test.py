"""Delimiters and special tokens that a dialogue spells stay text, in tokenizers of every family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece

from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS
from motif_jax.ilql.tasks.file_tokens import FileTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz<>/|.▁"
SPELLED = f"close the tag by {' or '.join(DELIMITER_TEXTS)} here"


def unigram(byte_fallback: bool = False) -> Tokenizer:
    """Its vocabulary has control tokens with the best score of all, as SentencePiece writes
    them.
    """
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<a>", -2.0)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256) if byte_fallback]
    pieces += [(letter, -3.0) for letter in LETTERS]
    backend = Tokenizer(Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["</s>"])
    return backend


def with_plain_marks(normalized: bool) -> Tokenizer:
    """Byte pairs whose delimiters are added tokens that are not special."""
    alphabet = {
        letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    backend = Tokenizer(BPE(alphabet, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(
        [AddedToken(text, normalized=normalized) for text in (*DELIMITER_TEXTS, "<think>")]
    )
    return backend


def with_merged_marks() -> Tokenizer:
    """Byte pairs that merge to delimiters."""
    pieces = [*LETTERS, "</", "</s", "</s>", "<s", "<s>"]
    merges = [("<", "/"), ("</", "s"), ("</s", ">"), ("<", "s"), ("<s", ">")]
    backend = Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Replace("▁", " ")
    return backend


def whole_words(kind: Callable[..., object]) -> Tokenizer:
    words = ["[UNK]", "<s>", "</s>", "<a>", "close", "the", "tag", "by", "or", "here"]
    backend = Tokenizer(
        kind({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


BACKENDS: dict[str, Callable[[], Tokenizer]] = {
    "unigram": unigram,
    "unigram with bytes": lambda: unigram(byte_fallback=True),
    "added tokens": lambda: with_plain_marks(normalized=False),
    "normalized added tokens": lambda: with_plain_marks(normalized=True),
    "merges": with_merged_marks,
    "words": lambda: whole_words(WordLevel),
    "word pieces": lambda: whole_words(WordPiece),
}


def saved(backend: Tokenizer, folder: Path) -> FileTokenizer:
    backend.save(str(folder / "tokenizer.json"))
    return FileTokenizer("tokenizer", str(folder))


@pytest.mark.parametrize("name", BACKENDS)
def test_spelled_delimiters_give_no_delimiter_token(name: str, tmp_path: Path) -> None:
    tokenizer = saved(BACKENDS[name](), tmp_path)
    assert not set(tokenizer.encode(SPELLED)) & set(tokenizer.delimiters)


@pytest.mark.parametrize("name", [name for name in BACKENDS if "word" not in name])
def test_spelled_delimiters_are_read_back_as_written(name: str, tmp_path: Path) -> None:
    tokenizer = saved(BACKENDS[name](), tmp_path)
    assert tokenizer.decode(tokenizer.encode(SPELLED)) == SPELLED


@pytest.mark.parametrize("name", BACKENDS)
def test_texts_without_marks_have_the_tokens_of_the_file(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name]()
    text = "close the tag by the tag or here"
    before = backend.encode(text, add_special_tokens=False).ids
    assert saved(backend, tmp_path).encode(text) == before


@pytest.mark.parametrize("name", BACKENDS)
def test_delimiters_keep_the_numbers_of_the_file(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name]()
    tokenizer = saved(backend, tmp_path)
    known = {text: backend.token_to_id(text) for text in DELIMITER_TEXTS}
    for text, number in zip(DELIMITER_TEXTS, tokenizer.delimiters, strict=True):
        assert known[text] in (None, number)


def test_added_tokens_that_are_no_marks_stay_tokens(tmp_path: Path) -> None:
    tokenizer = saved(with_plain_marks(normalized=True), tmp_path)
    assert tokenizer.encode("<think>") == [262]
