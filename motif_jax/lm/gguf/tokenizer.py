"""Rebuilds a tokenizer and a chat template from the metadata of a GGUF file, which has no
tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from motif_jax.core.errors import UserError, first_line
from motif_jax.lm.gguf import files

# Kinds of tokens: special ones, and those that are found whole in a text all the same (`<think>`).
_CONTROL, _USER_DEFINED = 3, 4
_BLANK, _MARK = " ", "▁"
# Name in tokenizer_config.json -> key of the metadata.
_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
# How texts are cut into words before byte pairs are merged, by llama.cpp's name. Most names are one
# model's, several cut alike.
_GPT2 = ("gpt-2", "gpt2", "default", "phi-2", "olmo", "mpt")
_DIGIT_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "falcon3", "pixtral")
_QWEN2 = ("qwen2", "deepseek-r1-qwen", "megrez")
# As in the tokenizer.json files of Llama 3 and Qwen 2; they differ in how many digits are one word.
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def build(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
      UserError: the file cannot be read, has no tokenizer, or one of a kind that is not supported.
    """
    metadata = files.read(path).metadata
    kind = metadata.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if kind not in builders:
        raise UserError(
            f"{path}: tokenizer.ggml.model is {kind!r}, must be one of {', '.join(builders)}"
        )
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise UserError(f"{path}: tokenizer.ggml.tokens is missing")
    try:
        # Pieces first, then what is never cut, then the template that adds special tokens by their
        # numbers.
        backend = builders[kind](path, tokens, metadata)
        _add_whole_tokens(backend, tokens, metadata)
        _add_special_tokens(backend, tokens, metadata)
    except UserError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{path}: its tokenizer is damaged ({first_line(error)})") from None
    return backend


def description(path: str | Path) -> dict[str, Any]:
    """The entries of a tokenizer_config.json: the texts of special tokens, and the chat template
    where the file has one.
    """
    metadata = files.read(path).metadata
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    values: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for name, key in _NAMED.items():
        number = metadata.get(f"tokenizer.ggml.{key}")
        if number is not None and 0 <= number < len(tokens):
            values[name] = tokens[number]
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        values["chat_template"] = template
    return values


def _byte_level(path: str | Path, tokens: Sequence[str], metadata: Mapping[str, Any]) -> Tokenizer:
    """GPT-2's byte pairs of bytes."""
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise UserError(f"{path}: tokenizer.ggml.merges is missing")
    words = _words_of(path, metadata)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [_pair(merge) for merge in merges]
    for first, second in pairs:
        # The library ends the process where a merge is of no tokens.
        if not {first, second, first + second} <= vocabulary.keys():
            raise UserError(
                f"{path}: tokenizer.ggml.merges has {first} {second}, which are not tokens"
            )
    # Llama 3 takes a word that is a token as it is, even where merges would end elsewhere.
    backend = Tokenizer(BPE(vocabulary, pairs, fuse_unk=False, ignore_merges=words in _LLAMA3))
    backend.decoder = decoders.ByteLevel()
    if words in _GPT2:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif words in _DIGIT_BY_DIGIT:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    elif words in _LLAMA3:
        backend.pre_tokenizer = _split(_LLAMA3_WORDS)
    elif words in _QWEN2:
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = _split(_QWEN2_WORDS)
    else:
        allowed = ", ".join((*_GPT2, *_DIGIT_BY_DIGIT, *_LLAMA3, *_QWEN2))
        raise UserError(f"{path}: tokenizer.ggml.pre is {words!r}, must be one of {allowed}")
    return backend


def _words_of(path: str | Path, metadata: Mapping[str, Any]) -> str:
    """llama.cpp's name of how texts are cut into words, which files of before May 2024 lack."""
    words = metadata.get("tokenizer.ggml.pre")
    if words is not None:
        return str(words)
    architecture = metadata.get("general.architecture")
    if architecture in ("qwen2", "qwen3"):
        return "qwen2"
    raise UserError(
        f"{path}: tokenizer.ggml.pre is missing, which says how texts are cut into words (architecture {architecture}): "
        "take a newer file of this model"
    )


def _split(words: str) -> Any:
    cut = pre_tokenizers.Split(Regex(words), "isolated")
    return pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _pair(merge: str) -> tuple[str, str]:
    first, _, second = merge.partition(" ")
    return first, second


def _sentence_piece(
    path: str | Path, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> Tokenizer:
    """SentencePiece's byte pairs of letters, a blank written as a mark, and bytes for what has no
    token.
    """
    scores = metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise UserError(f"{path}: tokenizer.ggml.scores do not fit tokenizer.ggml.tokens")
    is_gemma = metadata.get("general.architecture", "").startswith("gemma")
    # Gemma's runs of blanks are in the file as blanks.
    pieces = [
        _MARK * len(token) if token and not token.strip(_BLANK) else token for token in tokens
    ]
    # Of Gemma the order of the tokens is the order of the merges, and not their scores.
    ranks = range(0, -len(pieces), -1) if is_gemma else scores.tolist()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    backend = Tokenizer(
        BPE(
            vocabulary,
            _merges_of(vocabulary, pieces, ranks),
            unk_token=None if unknown is None else pieces[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [decoders.Replace(_MARK, _BLANK), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        # A mark stands before every piece of text, that after a special token included, as in
        # llama.cpp and in Llama 2's file.
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend(_MARK), normalizers.Replace(_BLANK, _MARK)]
        )
        steps.append(decoders.Strip(_BLANK, left=1, right=0))
    else:
        backend.normalizer = normalizers.Replace(_BLANK, _MARK)
    backend.decoder = decoders.Sequence(steps)
    return backend


def _merges_of(
    vocabulary: Mapping[str, int], pieces: Sequence[str], ranks: Sequence[float]
) -> list[tuple[str, str]]:
    """All pairs of pieces that are a piece together, the best first: SentencePiece's file has no
    list of merges.
    """
    ranked = []
    for piece, rank in zip(pieces, ranks, strict=True):
        for cut in range(1, len(piece)):
            first = piece[:cut]
            second = piece[cut:]
            if first in vocabulary and second in vocabulary:
                ranked.append((rank, len(first), len(second), first, second))
    # The best rank first; of equal ones that with the longer first piece.
    ranked.sort(key=lambda entry: entry[:3], reverse=True)
    return [(first, second) for *_, first, second in ranked]


def _add_whole_tokens(
    backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Adds the tokens that are never cut into pieces: special ones, and those of users."""
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    special = [
        AddedToken(token, normalized=False, special=True)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind == _CONTROL
    ]
    # Runs of blanks are ordinary pieces, which merges make (`_sentence_piece`).
    others = [
        AddedToken(token, normalized=False, special=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind == _USER_DEFINED and token.strip(_BLANK)
    ]
    backend.add_special_tokens(special)
    backend.add_tokens(others)


def _add_special_tokens(
    backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Makes the tokenizer begin and end texts with the special tokens that the file asks for."""
    by_default = (
        metadata.get("tokenizer.ggml.model") == "llama"
        or metadata.get("tokenizer.ggml.pre") in _LLAMA3
    )
    parts = ["$A"]
    numbers = []
    begin = metadata.get("tokenizer.ggml.bos_token_id")
    if begin is not None and metadata.get("tokenizer.ggml.add_bos_token", by_default):
        parts.insert(0, _escaped(tokens[begin]))
        numbers.append((tokens[begin], begin))
    end = metadata.get("tokenizer.ggml.eos_token_id")
    if end is not None and metadata.get("tokenizer.ggml.add_eos_token", False):
        parts.append(_escaped(tokens[end]))
        numbers.append((tokens[end], end))
    if numbers:
        backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=numbers)


def _escaped(token: str) -> str:
    """A token as a part of a template, in which a leading $ would name a text."""
    if token.startswith("$"):
        raise UserError(f"the special token {token!r} cannot begin or end texts")
    return token
