"""What cannot be trained is said before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.lm import pretrain_language_model as stage
from tests import texts
from tests.lm.pretraining import config_of


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("kind", ["jsonl", "dialogues"])
def test_prompts_are_refused_where_all_of_a_window_is_learned(
    text: Path, tmp_path: Path, kind: str
) -> None:
    """They would be learned, those of dialogues once for each action behind them."""
    path = texts.write(tmp_path, prompts=True)
    if kind == "dialogues":
        path = path.with_suffix(".parquet")
        dialogue = Dialogue(("here", "a key", "there", "a door"), (None, 0.0, None, 1.0), True)
        dialogue_files.write(path, [Dialogues.of([dialogue] * 8)], {})
    values = {"texts": str(text), "length": 4, "held_out.texts": str(path)}
    for architecture in ("gpt2", "roberta", "t5"):
        more = {"model.architecture": architecture, "tokenizer.vocab_size": 400}
        with pytest.raises(
            UserError, match=r"config\.packing=windows: must be 'items' .*has prompts"
        ):
            stage.check(config_of(text, **values, **more), tmp_path / "r")
    stage.check(config_of(text, **values, packing="items"), tmp_path / "r")
