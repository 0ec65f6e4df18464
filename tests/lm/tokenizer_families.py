"""Made-up tokenizers of six families, as checkpoints come with them."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, WordLevelTrainer, WordPieceTrainer

TEXTS = [
    "go to the red ball",
    "go forward",
    "turn left",
    "turn right",
    "pick up the key",
    "the door is open",
]
# What every model's config.json of the tests names.
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
_LETTERS = sorted({letter for text in TEXTS for letter in text} - {" "})


def byte_level() -> Tokenizer:
    """GPT-2's: byte pairs of bytes, a blank is part of the word behind it."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        TEXTS, BpeTrainer(vocab_size=60, special_tokens=SPECIAL, show_progress=False)
    )
    return backend


def unigram(byte_fallback: bool = False) -> Tokenizer:
    """T5's: pieces with a score, a blank is a mark before a word, and each text ends with </s>."""
    pieces = [(text, 0.0) for text in SPECIAL]
    if byte_fallback:
        pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    words = sorted({word for text in TEXTS for word in text.split()})
    pieces += [(letter, -6.0) for letter in ("▁", *_LETTERS)]
    pieces += [(f"▁{word}", -8.0) for word in words if len(word) % 2]
    backend = Tokenizer(Unigram(pieces, unk_id=3, byte_fallback=byte_fallback))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return backend


def word_piece() -> Tokenizer:
    """BERT's: parts of a word behind its first begin with ##."""
    backend = Tokenizer(WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.train_from_iterator(
        TEXTS, WordPieceTrainer(vocab_size=60, special_tokens=SPECIAL, show_progress=False)
    )
    return backend


def word_level() -> Tokenizer:
    """A token for each word."""
    backend = Tokenizer(WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.train_from_iterator(
        TEXTS, WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
    )
    return backend


def mark_blanks(backend: Tokenizer) -> None:
    """Makes blanks marks, with one before a text, and marks blanks again, as in Llama 2."""
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )


def metaspace_pairs() -> Tokenizer:
    """Llama 2's: byte pairs as SentencePiece has them, with a mark for a blank, bytes for other
    letters, and <s> first.
    """
    letters = ["▁", *_LETTERS]
    merges = [
        ("▁", "g"),
        ("▁g", "o"),
        ("▁", "t"),
        ("▁t", "h"),
        ("▁th", "e"),
        ("▁t", "u"),
        ("▁tu", "r"),
    ]
    pieces = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *letters,
        *("".join(pair) for pair in merges),
    ]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(
        BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    mark_blanks(backend)
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return backend


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "byte-level byte pairs": byte_level,
    "unigram": unigram,
    "unigram with bytes": lambda: unigram(byte_fallback=True),
    "word pieces": word_piece,
    "words": word_level,
    "byte pairs with marks for blanks": metaspace_pairs,
}
