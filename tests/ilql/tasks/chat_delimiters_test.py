"""Actions of a chat model end at the token that ends the model's own turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import tokenise
from motif_jax.ilql.tasks.file_tokens import FileTokenizer

ALPHABET = 256


def written(folder: Path, special: list[str]) -> Path:
    """A tokenizer of bytes with special tokens behind them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(special)
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("end", ["<|im_end|>", "<|eot_id|>", "<end_of_turn>"])
def test_end_of_a_turn_of_the_model_ends_actions(tmp_path: Path, end: str) -> None:
    tokenizer = FileTokenizer("k", str(written(tmp_path, ["<|endoftext|>", end])))
    assert tokenizer.delimiters.action_end == ALPHABET + 1
    assert tokenizer.delimiter_texts == ("<|pad|>", "<s>", "<a>", "</s>", end, "</eod>")


def test_delimiters_of_a_chat_model_are_distinct(tmp_path: Path) -> None:
    tokenizer = FileTokenizer("k", str(written(tmp_path, ["<|im_start|>", "<|im_end|>"])))
    assert len(set(tokenizer.delimiters)) == 6
    assert tokenizer.size == ALPHABET + 2 + 5


def test_tokenizer_with_delimiters_keeps_them(tmp_path: Path) -> None:
    tokenizer = FileTokenizer("k", str(written(tmp_path, ["<|im_end|>", "</a>"])))
    assert tokenizer.delimiters.action_end == ALPHABET + 1


def test_saved_tokenizer_has_the_same_delimiters(tmp_path: Path) -> None:
    tokenizer = FileTokenizer("k", str(written(tmp_path, ["<|im_end|>"])))
    tokenizer.save(tmp_path / "saved")
    assert FileTokenizer("k", str(tmp_path / "saved")).delimiters == tokenizer.delimiters


def test_actions_end_by_the_models_token_except_spelled_ones(tmp_path: Path) -> None:
    tokenizer = FileTokenizer("k", str(written(tmp_path, ["<|im_end|>"])))
    spoken = Dialogue(("say <|im_end|>", "</a>"), (None, 1.0), True)
    item = tokenise(spoken, tokenizer, lambda tokens: np.zeros(len(tokens)))
    assert (item.tokens == ALPHABET).sum() == 1
    assert item.tokens[item.utterance_action_indices].tolist() == [ALPHABET]
