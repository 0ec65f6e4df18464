"""A tokenizer of byte pairs whose merges reach across blanks and colons, as those of fast or of
learned tokenizers may.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

# "Ġ" is the blank.
LETTERS = ("<pad>", "<s>", "</s>", "a", "b", "c", ":", "Ġ")
# In the order in which they are made: "b:" + " a" becomes "b", ": a".
MERGES = (("Ġ", "a"), ("a", "b"), (":", "Ġa"), ("b", "Ġ"), ("c", "c"), ("c", "Ġa"))
ALPHABET = "abc: "


def tokenizer(begins: bool = False, ends: bool = False) -> Tokenizer:
    """`begins`, `ends`: adds `<s>` in front of a text, `</s>` behind it."""
    pieces = [*LETTERS, *("".join(merge) for merge in MERGES)]
    backend = Tokenizer(
        models.BPE({piece: number for number, piece in enumerate(pieces)}, list(MERGES))
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<pad>", "<s>", "</s>"])
    if begins or ends:
        form = f"{'<s> ' if begins else ''}$A{' </s>' if ends else ''}"
        special = [("<s>", pieces.index("<s>")), ("</s>", pieces.index("</s>"))]
        backend.post_processor = processors.TemplateProcessing(form, special_tokens=special)
    return backend
