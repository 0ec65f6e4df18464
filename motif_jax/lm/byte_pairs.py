"""Trains byte-pair tokenizers (Sennrich et al. 2016, on bytes as in GPT-2, so that any text has
tokens).

Merges stay inside words, or, with `phrases`, inside the matches of a regular expression, such as
sentences: a frequent sentence becomes one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.lm.tokens import FILE

SENTINELS = 100
BYTES = 256
# A sentence or a line, with the punctuation and blanks at its end.
SENTENCES = r"[^\n.!?]*(?:[.!?]+[ \n]*|\n+|$)"
_LONGEST_PHRASE = 64
_LONGEST_WORD = 1000


class Specials(NamedTuple):
    """Special tokens by their texts, numbered first in the order of `all`."""

    start: str
    pad: str
    end: str
    others: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys((self.start, self.pad, self.end, *self.others)))

    @property
    def numbers(self) -> dict[str, int]:
        """Numbers of `start`, `pad` and `end` in a tokenizer trained with them."""
        return {name: self.all.index(getattr(self, name)) for name in ("start", "pad", "end")}


def specials(architecture: str) -> Specials:
    """The special tokens of an architecture."""
    if architecture == "t5":
        more = ("<unk>", *(f"<extra_id_{number}>" for number in range(SENTINELS)))
        return Specials("<pad>", "<pad>", "</s>", more)
    if architecture == "roberta":
        return Specials("<s>", "<pad>", "</s>", ("<unk>", "<mask>"))
    return Specials("<|endoftext|>", "<|endoftext|>", "<|endoftext|>")


def smallest(architecture: str) -> int:
    """The size of a vocabulary without merges."""
    return BYTES + len(specials(architecture).all)


def cut_long_words(texts: Iterable[str]) -> Iterator[str]:
    """Cuts texts with very long words or blanks: the trainer is quadratic in their length."""
    for text in texts:
        # Other texts stay whole: a cut would end a word early.
        long = re.search(rf"\S{{{_LONGEST_WORD}}}|\s{{{_LONGEST_WORD}}}", text)
        length = _LONGEST_WORD if long else max(1, len(text))
        yield from (text[start : start + length] for start in range(0, len(text), length))


def train(texts: Iterable[str], architecture: str, vocab_size: int, phrases: str = "") -> Tokenizer:
    """Trains a tokenizer with an architecture's special tokens; the same texts give the same
    tokenizer.

    It has `vocab_size` tokens, or fewer where the texts have no more pairs. `phrases` is a regular
    expression of the pieces that merges stay inside, such as `SENTENCES`; '' for words.

    Raises:
      UserError: `vocab_size` is below the number of bytes and special tokens.
    """
    least = smallest(architecture)
    named = specials(architecture)
    if vocab_size < least:
        raise UserError(
            f"a vocabulary of {vocab_size} tokens: {architecture} needs at least {least}"
        )
    tokenizer = Tokenizer(models.BPE())
    # With phrases the expression cuts the text, and `ByteLevel` only turns bytes into letters.
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not phrases)
    tokenizer.pre_tokenizer = words
    if phrases:
        pieces = pre_tokenizers.Split(Regex(phrases), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=named.all,
        # All bytes, also those that the texts do not have: any text has tokens.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=_LONGEST_PHRASE if phrases else None,
        show_progress=False,
    )
    tokenizer.train_from_iterator(cut_long_words(texts), trainer)
    # As published, T5 ends a text, and RoBERTa begins and ends it; the others add nothing.
    around = {"t5": f"$A {named.end}", "roberta": f"{named.start} $A {named.end}"}.get(architecture)
    if around:
        numbers = [(token, tokenizer.token_to_id(token)) for token in named.all]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around, special_tokens=numbers
        )
    return tokenizer


def save(folder: Path, tokenizer: Tokenizer, architecture: str) -> None:
    """Writes tokenizer_config.json, which transformers' AutoTokenizer reads, and then
    tokenizer.json.
    """
    named = specials(architecture)
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    described |= {"bos_token": named.start, "pad_token": named.pad, "eos_token": named.end}
    described |= {
        f"{name[1:-1]}_token": name for name in named.others if name in ("<unk>", "<mask>")
    }
    atomic_write_json(folder / "tokenizer_config.json", described)
    # Last, since `text_data.make_tokenizer` takes a folder with it for a finished one.
    atomic_write_text(folder / FILE, tokenizer.to_str())
