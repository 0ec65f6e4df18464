"""A tokenizer whose regular expression never ends, through all that makes tokens of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from motif_jax.envs.babyai_text.prompts import PromptTokens
from motif_jax.envs.text.file_tokens import FileTokenizer
from motif_jax.language import tokens
from motif_jax.support import tokenizer_files
from motif_jax.support.errors import UserError

TEXT = "a" * 28 + "b"


@pytest.mark.parametrize(
    "encode",
    [
        lambda folder: tokens.Tokenizer.read(folder).encode([TEXT]),
        lambda folder: FileTokenizer("tokenizer", str(folder)).encode(TEXT),
        lambda folder: PromptTokens(str(folder / tokens.FILE), 64).write(TEXT, np.zeros(64, np.int32)),
    ],
    ids=["model", "task", "prompt"],
)
def test_a_regular_expression_that_fails_is_one_line(
    encode: Callable[[Path], object], tmp_path: Path
) -> None:
    made = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    made.save(str(tmp_path / tokens.FILE))
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be used: .*retry-limit-in-match"):
        encode(tmp_path)


def test_what_the_block_raises_itself_is_left_alone() -> None:
    with pytest.raises(KeyboardInterrupt), tokenizer_files.working("a file"):
        raise KeyboardInterrupt
