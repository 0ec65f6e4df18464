"""A config of a language model's training becomes the objective, the model and the tokens."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import init_model, pretrain_language_model
from motif_jax.lm.byte_pairs import SENTINELS
from motif_jax.lm.config import Dropout
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config

TOKENS = {"start": 1, "pad": 2, "end": 3}
MODEL = init_model.make("gpt2", Sizes(8, 1, 2, max_length=48), 40, TOKENS)
OBJECTIVES = {
    "gpt2": ("causal",),
    "llama": ("causal",),
    "qwen2": ("causal",),
    "roberta": ("masked",),
    "t5": ("spans", "prefix"),
}


def config_of(**values: Any) -> LanguageModelConfig:
    return read_section(
        LanguageModelConfig, load_config("pretrain_language_model", "smoke", values)
    )


@pytest.mark.parametrize("architecture", OBJECTIVES)
def test_the_first_objective_of_an_architecture_is_its_default(architecture: str) -> None:
    model = config_of(**{"model.architecture": architecture}).model

    assert pretrain_language_model.objective_of(None, model) == OBJECTIVES[architecture][0]


@pytest.mark.parametrize("architecture", OBJECTIVES)
def test_a_fresh_model_has_the_sizes_of_its_config(architecture: str) -> None:
    config = config_of(
        **{"model.architecture": architecture, "tokenizer.vocab_size": 300}, length=64, dropout=0.1
    )

    settings = pretrain_language_model.settings_of(config, None)

    assert settings.architecture == architecture
    assert settings.vocab_size == 300
    assert (settings.width, settings.layers, settings.heads) == (
        config.model.width,
        config.model.layers,
        config.model.heads,
    )
    # T5 has relative positions, as many as there are.
    assert settings.max_length == (None if architecture == "t5" else 64)
    assert settings.dropout != Dropout()


def test_a_model_may_have_more_positions_than_rows() -> None:
    values = {"model.architecture": "gpt2", "model.max_length": 80, "length": 64}

    assert pretrain_language_model.settings_of(config_of(**values), None).max_length == 80


@pytest.mark.parametrize(("objective", "longest"), [("causal", 9), ("masked", 8), ("spans", 9)])
def test_an_item_of_masked_text_leaves_room_for_its_start(objective: str, longest: int) -> None:
    assert pretrain_language_model.longest_item("items", 9, objective) == longest
    assert pretrain_language_model.longest_item("windows", 9, objective) is None


class Words:
    """Stands for a tokenizer with a mask and numbered sentinels."""

    def token(self, text: str) -> int:
        return 77 if text == "<mask>" else int(text.removeprefix("<extra_id_").removesuffix(">"))


@pytest.mark.parametrize(
    ("objective", "mask", "sentinels"),
    [("causal", -1, ()), ("masked", 77, ()), ("spans", -1, tuple(range(SENTINELS)))],
)
def test_an_objective_has_the_special_tokens_that_it_needs(
    objective: str, mask: int, sentinels: tuple[int, ...]
) -> None:
    words: Any = Words()

    tokens = pretrain_language_model.special_tokens(MODEL, words, objective)

    assert (tokens.start, tokens.end, tokens.pad) == (1, 3, 2)
    assert tokens.mask == mask
    assert tokens.sentinels == sentinels
    assert tokens.size == 40


def test_rows_longer_than_the_positions_are_refused() -> None:
    lora = config_of().lora
    pretrain_language_model.check_shapes(lora, 48, MODEL)

    with pytest.raises(
        UserError, match=r"config\.length=49: must be at most the 48 positions of the model"
    ):
        pretrain_language_model.check_shapes(lora, 49, MODEL)
