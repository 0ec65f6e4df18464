"""The published configs of train_text: their numbers, what they start from, and what they cannot start from."""

from __future__ import annotations

import pytest

from tests.reward_fixtures import load_config


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
