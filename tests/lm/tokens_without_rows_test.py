"""A tokenizer whose special tokens lie beyond the model's table, as Gemma 3's token of pictures
does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend

from motif_jax.core.errors import UserError
from motif_jax.lm.tokens import Tokenizer
from tests import chat_families

PICTURE = "<image_soft_token>"


def write(folder: Path, special: bool) -> int:
    """Writes a tokenizer with the token `PICTURE`; gives the number of rows of a model without
    it.
    """
    chat_families.write(folder, chat_families.FAMILIES["chatml"])
    path = str(folder / "tokenizer.json")
    backend = Backend.from_file(path)
    rows = backend.get_vocab_size()
    (backend.add_special_tokens if special else backend.add_tokens)([PICTURE])
    backend.save(path)
    return int(rows)


def test_only_a_text_with_the_token_is_refused(tmp_path: Path) -> None:
    rows = write(tmp_path, special=True)
    tokenizer = Tokenizer.read(tmp_path, rows)

    [tokens] = tokenizer.encode(["a text"])
    assert max(tokens) < rows
    with pytest.raises(
        UserError, match=r"a text has <image_soft_token>, for which the model beside it has no row"
    ):
        tokenizer.encode(["a text", f"look: {PICTURE}"])
    with pytest.raises(UserError, match="no row"):
        tokenizer.encode_joint([PICTURE], [[" a"]])


def test_a_tokenizer_with_a_word_beyond_the_table_is_refused(tmp_path: Path) -> None:
    rows = write(tmp_path, special=False)

    with pytest.raises(
        UserError, match=f"has {rows + 1} tokens, the model beside it {rows}: it belongs to another"
    ):
        Tokenizer.read(tmp_path, rows)
