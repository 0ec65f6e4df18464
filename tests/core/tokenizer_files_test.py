"""A tokenizer whose regular expression never ends, through all that makes tokens of texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from motif_jax.core.errors import UserError
from motif_jax.lm import tokens

TEXT = "a" * 28 + "b"


def test_a_regular_expression_that_fails_is_one_line(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer.save(str(tmp_path / tokens.FILE))
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be used: .*retry-limit-in-match"):
        tokens.Tokenizer.read(tmp_path).encode([TEXT])
