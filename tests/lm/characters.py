"""A tokenizer whose tokens are the letters a to z, and an end token."""

from __future__ import annotations

import string
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors

END = 26
SIZE = 27


def write(folder: Path) -> Path:
    """Writes tokenizer.json, which adds `END` where special tokens are asked for; returns the
    folder.
    """
    words = {letter: number for number, letter in enumerate(string.ascii_lowercase)}
    tokenizer = Tokenizer(models.WordLevel({**words, "</s>": END}, "</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        "$A </s>", special_tokens=[("</s>", END)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def numbers(text: str) -> list[int]:
    return [string.ascii_lowercase.index(letter) for letter in text]
