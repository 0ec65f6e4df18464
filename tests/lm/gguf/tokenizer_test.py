"""Tokenizers from the metadata of GGUF files: words as each model cuts them, SentencePiece's
merges, special tokens.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from motif_jax.core.errors import UserError
from motif_jax.lm.gguf import tokenizer
from tests import made_up_judge
from tests.lm.gguf import gguf_writing, make_llama_cpp_tokens
from tests.lm.gguf.gguf_writing import BYTE, CONTROL, NORMAL, USER_DEFINED, gguf

TEXTS = [
    "", " ", "You kill the newt!", "  two blanks\n\n\nthree lines\t", "It's 1234.5 m, DON'T 七 é", "<|im_start|>user\nA<|im_end|>",
    "naïve café 😀", "a" * 40, "def f(x):\r\n    return x**2", "￼�",
]  # fmt: skip
# Pieces of a SentencePiece vocabulary with their scores.
PIECES = {
    "▁": -1.0, "a": -2.0, "b": -3.0, "c": -4.0, "ab": -5.0, "bc": -6.0, "▁a": -7.0, "abc": -8.0, "▁ab": -9.0, "▁▁": -10.0,
    "ca": -11.0, "cab": -12.0, "▁▁▁": -13.0, "bca": -14.0,
}  # fmt: skip
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
# What llama.cpp makes of texts (`make_llama_cpp_tokens`).
REFERENCE = json.loads(Path(__file__).with_name("llama_cpp_tokens.json").read_text())


def byte_pair_file(
    path: Path,
    words: str | None,
    backend: Tokenizer | None = None,
    architecture: str = "llama",
    **more: Any,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    gguf_writing.add_byte_pairs(writer, backend or made_up_judge.tokenizer(), words)
    for key, value in more.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(
            f"tokenizer.ggml.{key}", value
        )
    return gguf_writing.finished(writer, path)


def pieces_file(
    path: Path, architecture: str, scores: list[float] | None = None, **more: Any
) -> Path:
    """A SentencePiece vocabulary as `tokenizer.ggml.*`, with all bytes and one token of a user."""
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "[turn]"]
    kinds = [CONTROL] * len(SPECIAL) + [BYTE] * 256 + [NORMAL] * len(PIECES) + [USER_DEFINED]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_scores(
        [-1000.0] * (len(SPECIAL) + 256) + (scores or list(PIECES.values())) + [-1000.0]
    )
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    for key, value in more.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    return gguf_writing.finished(writer, path)


def merged(text: str) -> list[str]:
    """SentencePiece's algorithm: the neighbours whose piece has the best score become one, until
    none are a piece.
    """
    parts = list(text)
    while True:
        joined = ["".join(pair) for pair in itertools.pairwise(parts)]
        candidates = [
            (PIECES[piece], -index) for index, piece in enumerate(joined) if piece in PIECES
        ]
        if not candidates:
            return parts
        index = -max(candidates)[1]
        parts[index : index + 2] = [joined[index]]


def test_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    original = made_up_judge.tokenizer()

    rebuilt = tokenizer.build(byte_pair_file(tmp_path / "model.gguf", "gpt-2"))

    assert [encoding.ids for encoding in rebuilt.encode_batch(TEXTS)] == [
        encoding.ids for encoding in original.encode_batch(TEXTS)
    ]
    assert rebuilt.get_vocab() == original.get_vocab()


@pytest.mark.parametrize(
    ("words", "text", "cut"),
    [
        ("gpt-2", "In 1234 don't", ["In", " 1234", " don", "'t"]),
        ("smollm", "In 1234 don't", ["In", " ", "1", "2", "3", "4", " don", "'t"]),
        ("llama-bpe", "In 1234 DON'T", ["In", " ", "123", "4", " DON", "'T"]),
        ("qwen2", "In 1234 DON'T", ["In", " ", "1", "2", "3", "4", " DON", "'T"]),
        ("qwen2", "x\n\n  y", ["x", "\n\n", " ", " y"]),
        ("gpt-2", "x\n\n  y", ["x", "\n\n ", " y"]),
    ],
)
def test_words_are_cut_as_the_model_cuts_them(
    tmp_path: Path, words: str, text: str, cut: list[str]
) -> None:
    backend = tokenizer.build(byte_pair_file(tmp_path / "model.gguf", words))

    assert [
        text[start:stop] for _, (start, stop) in backend.pre_tokenizer.pre_tokenize_str(text)
    ] == cut


@pytest.mark.parametrize("group", REFERENCE["words"])
def test_byte_pairs_are_those_of_llama_cpp(tmp_path: Path, group: str) -> None:
    for name in group.split():
        path = make_llama_cpp_tokens.write_byte_pairs(
            tmp_path / f"{name}.gguf", name, REFERENCE["merges"]
        )

        encodings = tokenizer.build(path).encode_batch(list(make_llama_cpp_tokens.TEXTS))

        assert [encoding.ids for encoding in encodings] == REFERENCE["words"][group]


@pytest.mark.parametrize("variant", REFERENCE["pieces"])
def test_pieces_are_those_of_llama_cpp(tmp_path: Path, variant: str) -> None:
    path = make_llama_cpp_tokens.write_pieces(
        tmp_path / "model.gguf", *make_llama_cpp_tokens.PIECES[variant]
    )

    encodings = tokenizer.build(path).encode_batch(list(make_llama_cpp_tokens.TEXTS))

    assert [encoding.ids for encoding in encodings] == REFERENCE["pieces"][variant]


def test_every_accepted_way_of_cutting_words_is_compared() -> None:
    compared = {name for group in REFERENCE["words"] for name in group.split()}

    assert compared == tokenizer.WORDS.keys()


@pytest.mark.parametrize("words", [None, "poro-chat", "gpt2"])
def test_words_of_an_unknown_kind_are_refused(tmp_path: Path, words: str | None) -> None:
    path = byte_pair_file(tmp_path / "model.gguf", words)

    with pytest.raises(UserError, match=rf"tokenizer\.ggml\.pre.* is {words!r}, must be one of"):
        tokenizer.build(path)


def test_end_of_a_turn_is_special_whatever_its_kind(tmp_path: Path) -> None:
    path = make_llama_cpp_tokens.write_byte_pairs(
        tmp_path / "model.gguf", "qwen2", REFERENCE["merges"]
    )
    backend = tokenizer.build(path)

    encoding = backend.encode("a<|im_end|>")

    assert encoding.tokens == ["a", "<|im_end|>"]
    assert backend.decode(encoding.ids, skip_special_tokens=True) == "a"


def test_pieces_of_equal_scores_that_overlap_are_refused(tmp_path: Path) -> None:
    path = pieces_file(tmp_path / "model.gguf", "llama", scores=[-1.0] * len(PIECES))

    with pytest.raises(UserError, match=r"tokenizer\.ggml\.scores has -1\.0 for both"):
        tokenizer.build(path)


def test_special_tokens_are_whole_and_left_out_of_texts(tmp_path: Path) -> None:
    backend = tokenizer.build(byte_pair_file(tmp_path / "model.gguf", "qwen2"))

    encoding = backend.encode("<|im_start|>A<|im_end|>")

    assert encoding.tokens == ["<|im_start|>", "A", "<|im_end|>"]
    assert backend.decode(encoding.ids, skip_special_tokens=True) == "A"


@pytest.mark.parametrize(
    ("asked", "begun"),
    [({}, False), ({"add_bos_token": True}, True), ({"add_bos_token": False}, False)],
)
def test_beginning_token_is_added_where_the_file_asks(
    tmp_path: Path, asked: dict[str, bool], begun: bool
) -> None:
    backend = made_up_judge.tokenizer()
    begin = backend.token_to_id("<|endoftext|>")
    path = byte_pair_file(tmp_path / "model.gguf", "gpt-2", backend, bos_token_id=begin, **asked)

    encoding = tokenizer.build(path).encode("A")

    assert encoding.tokens == (["<|endoftext|>", "A"] if begun else ["A"])


@pytest.mark.parametrize("text", ["abc", "a bca", "cabab  c", "b   a", "abcabc bcab ca"])
def test_pieces_are_merged_as_sentence_piece_does(tmp_path: Path, text: str) -> None:
    backend = tokenizer.build(pieces_file(tmp_path / "model.gguf", "llama"))

    assert backend.encode(text).tokens == ["<bos>", *merged(f"▁{text}".replace(" ", "▁"))]
    assert backend.decode(backend.encode(text).ids) == text


@pytest.mark.parametrize("text", ["abc", "a bca", "  cabab  c", "b   a"])
def test_gemma_begins_without_a_blank(tmp_path: Path, text: str) -> None:
    backend = tokenizer.build(
        pieces_file(tmp_path / "model.gguf", "gemma3", add_space_prefix=False)
    )

    assert backend.encode(text).tokens == ["<bos>", *merged(text.replace(" ", "▁"))]
    assert backend.decode(backend.encode(text).ids) == text


@pytest.mark.parametrize("text", ["[turn]abc", "[turn] abc", "<bos>abc[turn]ca<eos>"])
def test_a_mark_stands_before_each_text_after_a_whole_token(tmp_path: Path, text: str) -> None:
    """As llama.cpp has it: each text between whole tokens gets a blank in front, one that begins
    with a blank as well.
    """
    backend = tokenizer.build(pieces_file(tmp_path / "model.gguf", "llama"))
    expected = []
    for part in re.split(r"(\[turn\]|<bos>|<eos>)", text):
        if part.startswith(("[", "<")):
            expected.append(part)
        elif part:
            expected += merged("▁" + part.replace(" ", "▁"))

    assert backend.encode(text, add_special_tokens=False).tokens == expected


def test_what_has_no_piece_is_bytes(tmp_path: Path) -> None:
    backend = tokenizer.build(pieces_file(tmp_path / "model.gguf", "llama", add_bos_token=False))

    assert backend.encode("é[turn]").tokens == ["▁", "<0xC3>", "<0xA9>", "[turn]"]
    assert backend.decode(backend.encode("aé").ids) == "aé"


def test_end_token_is_added_where_the_file_asks(tmp_path: Path) -> None:
    backend = tokenizer.build(pieces_file(tmp_path / "model.gguf", "llama", add_eos_token=True))

    assert backend.encode("a").tokens == ["<bos>", "▁a", "<eos>"]


def test_special_tokens_are_described_by_their_texts(tmp_path: Path) -> None:
    path = pieces_file(tmp_path / "model.gguf", "llama")

    values = tokenizer.description(path, tokenizer.build(path)).config

    named = {name: values[name] for name in ("bos_token", "eos_token", "unk_token")}
    assert named == {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}


def test_special_tokens_that_are_ordinary_pieces_have_a_name_and_are_cut(tmp_path: Path) -> None:
    number = made_up_judge.tokenizer().token_to_id("A")
    path = byte_pair_file(tmp_path / "model.gguf", "gpt-2", bos_token_id=number)

    described = tokenizer.description(path, tokenizer.build(path))

    assert described.names == {"bos_token": "A"}
    assert "bos_token" not in described.config
