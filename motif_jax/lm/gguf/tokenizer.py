"""Rebuilds a tokenizer and a chat template from the metadata of a GGUF file, which has no
tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

from motif_jax.core.errors import UserError
from motif_jax.lm.gguf import files

# Kinds of tokens: pieces, and those that are found whole in a text: special ones, and those of
# users (`<think>`).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_BLANK, _MARK = " ", "▁"
# Name in tokenizer_config.json -> key of the metadata.
_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
# The tokens that begin and end texts where a file names none, by tokenizer.ggml.model.
_BEGIN = {"llama": 1, "gpt2": 11}
_END = {"llama": 2, "gpt2": 11}
# Tokens that llama.cpp takes for special ones by their texts, whatever kind the file says: ends of
# texts and turns, and marks of code to be filled in.
_SPECIAL_TEXTS = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] "
    "[EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[ "
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|> "
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>".split()
)
# Tokens that llama.cpp takes for those of users.
_USER_TEXTS = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))
# Expressions by which texts are cut into words before byte pairs are merged, one after the other.
_GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
_DIGIT_BY_DIGIT = (r"\p{N}", *_GPT2)
_DEFAULT = (r"[\p{P}$+<=>^~|]+", *_GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_QWEN2 = (_LLAMA3[0].replace(r"\p{N}{1,3}", r"\p{N}"),)
# By llama.cpp's name of the tokenizer (tokenizer.ggml.pre). Only names are here whose tokens were
# found equal to llama.cpp's: tests/lm/gguf/llama_cpp_tokens.json.
WORDS = {
    "default": _DEFAULT,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGIT_BY_DIGIT),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "smaug-bpe", "dbrx"), _LLAMA3
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
}
# Llama 3's own: a word that is a token is taken as it is, even where merges would end elsewhere,
# and texts begin with a special token unless the file says otherwise.
_OWN_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral")


def build(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
      UserError: texts are cut into words by an expression that is not known, or the scores leave
          open which pieces are merged first.
    """
    metadata = files.read(path).metadata
    build_pieces = {"gpt2": _byte_level, "llama": _sentence_piece}[metadata["tokenizer.ggml.model"]]
    tokens = metadata["tokenizer.ggml.tokens"]
    # Pieces first, then what is never cut, then the template that adds special tokens by their
    # numbers.
    backend = build_pieces(path, tokens, metadata)
    _add_whole_tokens(backend, tokens, metadata)
    _add_special_tokens(backend, tokens, metadata)
    return backend


class Description(NamedTuple):
    """What stands beside a tokenizer.json.

    Attributes:
      config: the entries of tokenizer_config.json: the texts of special tokens, and the chat
        template where the file has one.
      names: those of special_tokens_map.json: tokens with a name that are cut into pieces, since
        the file has them as ordinary ones.
    """

    config: dict[str, Any]
    names: dict[str, str]


def description(path: str | Path, backend: Tokenizer) -> Description:
    """The description of the tokenizer `backend` of a file."""
    metadata = files.read(path).metadata
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        # All are in tokenizer.json. With this entry names of special_tokens_map.json make no
        # further ones.
        "added_tokens_decoder": {},
    }
    names: dict[str, str] = {}
    whole = backend.get_added_tokens_decoder()
    for name, key in _NAMED.items():
        number = metadata.get(f"tokenizer.ggml.{key}")
        if number is not None and 0 <= number < len(tokens):
            (config if number in whole else names)[name] = tokens[number]
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    return Description(config, names)


def _byte_level(path: str | Path, tokens: Sequence[str], metadata: Mapping[str, Any]) -> Tokenizer:
    """GPT-2's byte pairs of bytes."""
    name = metadata.get("tokenizer.ggml.pre")
    if name not in WORDS:
        raise UserError(
            f"{path}: tokenizer.ggml.pre, which says how texts are cut into words, is {name!r}, must be one of {', '.join(WORDS)}"
        )
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = []
    for merge in metadata["tokenizer.ggml.merges"]:
        first, _, second = merge.partition(" ")
        pairs.append((first, second))
    backend = Tokenizer(BPE(vocabulary, pairs, fuse_unk=False, ignore_merges=name in _OWN_LLAMA3))
    backend.decoder = decoders.ByteLevel()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(words), "isolated") for words in WORDS[name]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return backend


def _sentence_piece(
    path: str | Path, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> Tokenizer:
    """SentencePiece's byte pairs of letters, a blank written as a mark, and bytes for what has no
    token.
    """
    scores = metadata["tokenizer.ggml.scores"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    backend = Tokenizer(
        BPE(
            vocabulary,
            _merges_of(
                path, vocabulary, scores.tolist(), metadata.get("tokenizer.ggml.token_type")
            ),
            unk_token=None if unknown is None else tokens[unknown],
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
    path: str | Path,
    vocabulary: Mapping[str, int],
    scores: Sequence[float],
    kinds: Sequence[int] | None,
) -> list[tuple[str, str]]:
    """All pairs of pieces that are a piece together, the best first: SentencePiece's file has no
    list of merges.

    Raises:
      UserError: two pieces that overlap have the same score. SentencePiece and llama.cpp then merge
          the left one first, which no list of merges says.
    """
    ranked = []
    # The pieces that begin with another one, by that and by their score.
    begun: dict[tuple[float, str], set[str]] = {}
    for (piece, number), score in zip(vocabulary.items(), scores, strict=True):
        for cut in range(1, len(piece)):
            first = piece[:cut]
            second = piece[cut:]
            if first in vocabulary and second in vocabulary:
                ranked.append((score, len(first), len(second), first, second))
                # Others are found whole before anything is merged.
                if kinds is None or kinds[number] == _NORMAL:
                    begun.setdefault((score, first), set()).add(piece)
    for score, _, _, first, second in ranked:
        rivals = begun.get((score, second), set()) - {first + second}
        if rivals and (kinds is None or kinds[vocabulary[first + second]] == _NORMAL):
            raise UserError(
                f"{path}: tokenizer.ggml.scores has {score} for both {first + second} and {rivals.pop()}, so that it is open which is merged first"
            )
    # The best score first; of equal ones that with the longer first piece.
    ranked.sort(key=lambda entry: entry[:3], reverse=True)
    return [(first, second) for *_, first, second in ranked]


def _add_whole_tokens(
    backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Adds the tokens that are found whole in a text before it is cut: special ones, and those of
    users, runs of blanks and line ends among them.
    """
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    special = []
    others = []
    for token, kind in zip(tokens, kinds, strict=False):
        if token in _USER_TEXTS:
            others.append(AddedToken(token, normalized=False, special=False))
        elif kind in (_UNKNOWN, _CONTROL) or token in _SPECIAL_TEXTS:
            special.append(AddedToken(token, normalized=False, special=True))
        elif kind == _USER_DEFINED:
            others.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(special)
    backend.add_tokens(others)


def _add_special_tokens(
    backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Makes the tokenizer begin and end texts with the special tokens that the file asks for."""
    kind = metadata["tokenizer.ggml.model"]
    by_default = kind == "llama" or metadata.get("tokenizer.ggml.pre") in _OWN_LLAMA3
    parts = ["$A"]
    numbers = []
    if metadata.get("tokenizer.ggml.add_bos_token", by_default):
        begin = metadata.get("tokenizer.ggml.bos_token_id", _BEGIN[kind])
        parts.insert(0, tokens[begin])
        numbers.append((tokens[begin], begin))
    if metadata.get("tokenizer.ggml.add_eos_token", False):
        end = metadata.get("tokenizer.ggml.eos_token_id", _END[kind])
        parts.append(tokens[end])
        numbers.append((tokens[end], end))
    if numbers:
        backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=numbers)
