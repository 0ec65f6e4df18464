"""Where trunks begin that are a language model's: whose tokens they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from motif_jax.datasets.dialogues.items import Vocabulary
from motif_jax.envs.text import registry
from motif_jax.sections.texts import TextConfig, TextMethod, TextTrunks
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder, agent_start, text_run
from tests.language import models, recipes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# With the delimiters, which are six, fewer than the rows of the models.
WORDS = recipes.VOCAB - 10


def folder_of(folder: Path, name: str = "llama") -> Path:
    """A model with rows behind its tokenizer's last token."""
    words = {f"word{number}": number for number in range(WORDS)}
    models.write(folder, name)
    Tokenizer(WordLevel(words, "word0")).save(str(folder / "tokenizer.json"))
    return folder


def of(folder: Path) -> tuple[Any, Vocabulary]:
    method, network = TextMethod(name="bc"), TextTrunks(checkpoint=str(folder))
    config = TextConfig(task="reddit", method=method, network=network)
    return config, agent_folder.vocabulary_of(registry.make("reddit", {"tokenizer": str(folder)}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_rows_that_fill_a_models_table_up_are_left_out(tmp_path: Path, name: str) -> None:
    """With a head of its own, and without one; delimiters have fresh rows, as where there are none to spare."""
    config, tokens = of(folder_of(tmp_path / "model", name))
    settings = agent_start.model_config(config, tokens, text_run.design_of(config.method))
    assert settings.vocab_size == tokens.size == WORDS + 6
    objective = text_run.objective_of(config, settings)
    given = config.network.checkpoint, config.initial, objective, tokens, jax.random.key(0)
    trunk = agent_start.start(*given).learned["trunks"]["policy"]
    _, params = models.load(tmp_path / "model")
    tables = [(trunk["embedding"], params["embedding"])]
    if name == "llama":
        tables.append((trunk["head"]["kernel"].T, params["head"]["kernel"].T))
    for found, there in tables:
        assert found.shape[0] == tokens.size
        np.testing.assert_array_equal(found[:WORDS], there[:WORDS])
        assert (found[WORDS:] != np.asarray(there[WORDS : tokens.size])).any(axis=1).all()


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    config, tokens = of(folder_of(tmp_path / "model"))
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace("word7", "other"))
    for change in (path.unlink, path.exists):
        with pytest.raises(
            UserError, match=r"checkpoint=.* rows of tokens, .* must be a model with the same"
        ):
            agent_start.model_config(config, tokens, text_run.design_of(config.method))
        change()
