"""The published configs of train_text: their numbers, what they start from, and what they cannot start from."""

from __future__ import annotations

import pytest

from motif_jax.stages import train_text as stage
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config


def check(variant: str) -> None:
    config = load_config("train_text", f"{variant}_faithful")
    config.num_devices = 1
    stage.check(config, None)


@pytest.mark.parametrize(
    ("variant", "numbers"),
    [
        ("wordle_bc", (64, 1, 1e-4, 0.01, 1.0)),
        ("wordle_ilql", (1024, 16, 1e-5, 0.0, 1.0)),
        ("visdial_bc", (256, 128, 1e-4, 0.0, 1.0)),
        ("visdial_cql", (64, 64, 1e-4, 0.0, 1.0)),
        ("visdial_psi", (64, 64, 1e-5, 0.0, 1.0)),
        ("visdial_ilql_utterance", (64, 64, 1e-4, 0.0, 0.0)),
        ("reddit_bc", (64, 64, 1e-4, 0.0, 1.0)),
        ("reddit_ilql", (64, 64, 1e-4, 0.0, 1.0)),
    ],
)
def test_faithful_batches_rates_and_weights_of_the_policy_are_the_published_ones(
    variant: str, numbers: tuple[float, ...]
) -> None:
    config = load_config("train_text", f"{variant}_faithful")
    rates = (config.optimizer.learning_rate, config.optimizer.weight_decay)
    assert (config.batch_size, config.accumulate, *rates, config.loss.policy) == numbers
    assert config.max_len == (512 if variant.startswith("reddit") else None)


def test_a_model_of_tokens_that_are_still_to_be_learned_is_refused() -> None:
    with pytest.raises(
        UserError,
        match=r"config\.network\.checkpoint=gpt2: must be None while the task learns its own tokens",
    ):
        check("reddit_bc")
