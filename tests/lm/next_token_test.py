"""The token after prompts that begin alike: as if each prompt was run alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import next_token
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.next_token import NextToken
from tests.lm import models
from tests.sets import extra

GROUPS = [[5], [7, 9, 11], [3]]
SHARED = [4, 8, 15, 16, 23]
ROWS = [
    [*SHARED, 42, 10],
    [*SHARED, 3, 9, 27, 14, 15, 35],
    [4, 8, 15],  # shorter than what the others share
    [1, *SHARED, 42],
    [*SHARED, 12],
]


@pytest.fixture(params=["llama", extra("qwen2"), extra("gpt2")])
def model(request, tmp_path):
    return models.load(models.write(tmp_path, request.param))


def alone(model: LanguageModel, params, row: list[int]) -> list[float]:
    """Log-probabilities of GROUPS after one prompt, by the whole network."""
    tokens = jnp.asarray([row])
    states = model.prefill(params, tokens, jnp.ones(tokens.shape, bool))[0].after
    log_probs = jax.nn.log_softmax(model.logits(params, states[:, -1]))[0]
    return [float(jnp.log(jnp.exp(log_probs[jnp.asarray(group)]).sum())) for group in GROUPS]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [extra(1), 2, 32])
def test_prompts_together_are_as_each_alone(model, batch: int) -> None:
    answers = np.zeros((len(ROWS), len(GROUPS)))
    for positions, log_probs in NextToken(*model, GROUPS, SHARED, batch)(ROWS):
        answers[positions] = log_probs
    np.testing.assert_allclose(answers, [alone(*model, row) for row in ROWS], atol=2e-5)


@pytest.mark.slow
def test_nothing_needs_to_be_shared(model) -> None:
    (answer,) = NextToken(*model, GROUPS)(ROWS[:1])
    np.testing.assert_allclose(answer[1][0], alone(*model, ROWS[0]), atol=2e-5)


def test_each_prompt_keeps_a_token_of_its_own() -> None:
    assert next_token.shared_length([[1, 2, 3], [1, 2, 3]]) == 2
    assert next_token.shared_length([[1, 2, 3], [1, 2, 4, 5]]) == 2
    assert next_token.shared_length([[1], [2, 3]]) == 0


def test_batches_hold_prompts_of_like_length() -> None:
    parts = next_token.batches([3, 30, 5, 31, 9], maximum=2)
    assert parts == [([3, 1], 32), ([4, 2], 16), ([0], 8)]


@pytest.mark.slow
def test_long_prompts_run_in_small_batches() -> None:
    parts = next_token.batches([3000, 3000, 100, 100], maximum=32, tokens_of_batch=4096)
    assert [part.positions for part in parts] == [[0], [1], [2, 3]]
