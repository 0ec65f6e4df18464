"""The token after prompts that begin alike: as if each prompt was run alone."""

from __future__ import annotations

import dataclasses
import functools

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
    [*SHARED, 3, 9, 27, 2],  # begins as the second
    [*SHARED, 3, 9],  # the beginning of another
    [*SHARED, 42, 10],  # twice
    [1, *SHARED, 42, 6],
]


# Gemma 3 has a window that is shorter than SHARED, GPT-2 a table of positions.
@pytest.fixture(params=["gemma3", extra("llama"), extra("qwen2"), extra("gpt2")])
def model(request, tmp_path):
    return models.load(models.write(tmp_path, request.param))


@functools.partial(jax.jit, static_argnums=0)
def log_probs_after(model: LanguageModel, params, tokens: jax.Array, valid: jax.Array):
    states, _ = model.prefill(params, tokens, valid)
    return jax.nn.log_softmax(model.logits(params, states.after[:, -1]))[0]


def alone(model: LanguageModel, params, row: list[int]) -> list[float]:
    """Log-probabilities of GROUPS after one prompt, by the whole network."""
    # One program for prompts of all lengths.
    tokens = np.zeros((1, 48), np.int32)
    tokens[0, 48 - len(row) :] = row
    log_probs = log_probs_after(model, params, tokens, np.arange(48)[None] >= 48 - len(row))
    return [float(jnp.log(jnp.exp(log_probs[jnp.asarray(group)]).sum())) for group in GROUPS]


def joint_log_probs(scorer: NextToken, rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities [rows, groups] and computed tokens [rows]."""
    log_probs = np.full((len(rows), len(GROUPS)), np.nan)
    computed = np.zeros(len(rows))
    for answered in scorer(rows):
        log_probs[answered.positions] = answered.log_probs
        computed[answered.positions] = answered.computed
    return log_probs, computed


@pytest.mark.slow
@pytest.mark.parametrize("batch", [extra(1), 32])
@pytest.mark.parametrize("loop", [False, extra(True)])
def test_prompts_together_are_as_each_alone(model, batch: int, loop: bool) -> None:
    network, params = model
    scorer = NextToken(dataclasses.replace(network, loop=loop), params, GROUPS, SHARED, batch)
    log_probs, computed = joint_log_probs(scorer, ROWS)
    np.testing.assert_allclose(log_probs, [alone(*model, row) for row in ROWS], atol=2e-5)
    # Of the tokens after SHARED those that no prompt before it has; rows 2, 3 and 8 do not begin
    # with SHARED.
    np.testing.assert_array_equal(computed, [2, 3, 3, 7, 1, 2, 2, 0, 1])


@pytest.mark.slow
def test_packs_that_run_together_do_not_see_each_other(model) -> None:
    draws = np.random.default_rng(3)
    rows = [[*SHARED, *draws.integers(1, 4, draws.integers(5, 40)).tolist()] for _ in range(36)]
    (part,) = next_token.batches([row[len(SHARED) :] for row in rows], batch=32)
    # Three packs in a program of four.
    assert 1 < len(part.packs) < part.size
    log_probs, _ = joint_log_probs(NextToken(*model, GROUPS, SHARED), rows)
    some = [0, 7, 19, 35]
    np.testing.assert_allclose(
        log_probs[some], [alone(*model, rows[index]) for index in some], atol=2e-5
    )


@pytest.mark.extra
def test_each_of_many_prompts_is_answered_once(model) -> None:
    draws = np.random.default_rng(5)
    # Some begin as SHARED does, some do not.
    rows = [
        [*SHARED[: draws.integers(3, 6)], *draws.integers(1, 9, 3).tolist()] for _ in range(150)
    ]

    answers = list(NextToken(*model, GROUPS, SHARED, batch=8)(rows))

    positions = [position for answered in answers for position in answered.positions]
    assert sorted(positions) == list(range(150))
    assert [len(answered.positions) for answered in answers] == [64, 64, 22]
    log_probs = np.concatenate([answered.log_probs for answered in answers])
    for index in (0, 63, 64, 149):
        expected = alone(*model, rows[positions[index]])
        np.testing.assert_allclose(log_probs[index], expected, atol=2e-5)


@pytest.mark.extra
def test_nothing_needs_to_be_shared(model) -> None:
    log_probs, _ = joint_log_probs(NextToken(*model, GROUPS), ROWS[:1])
    np.testing.assert_allclose(log_probs[0], alone(*model, ROWS[0]), atol=2e-5)


def test_each_prompt_keeps_a_token_of_its_own() -> None:
    assert next_token.shared_beginning_length([[1, 2, 3], [1, 2, 3]]) == 2
    assert next_token.shared_beginning_length([[1, 2, 3], [1, 2, 4, 5]]) == 2
    assert next_token.shared_beginning_length([[1], [2, 3]]) == 0


def test_batches_hold_prompts_of_like_length_the_longest_first() -> None:
    long = [7] * 300
    short = [8] * 20
    parts = next_token.batches([short, long, [9], long[:270]], batch=32)
    assert [part.width for part in parts] == [768, 256]
    assert [[pack.positions for pack in part.packs] for part in parts] == [[[3, 1]], [[0, 2]]]


def test_two_long_prompts_share_their_beginning() -> None:
    beginning = [1] * 100
    (part,) = next_token.batches([[*beginning, *[2] * 50], [*beginning, *[3] * 50]], batch=32)
    assert [pack.computed for pack in part.packs] == [[150, 50]]


def test_the_last_packs_run_in_the_program_of_others() -> None:
    rows = [[number] * 120 for number in range(14)]
    parts = next_token.batches(rows, batch=32)
    # Two prompts in each of seven packs, four packs at a time.
    assert [(len(part.packs), part.size) for part in parts] == [(4, 4), (3, 4)]
    parts = next_token.batches(rows[:10], batch=32)
    assert [(len(part.packs), part.size) for part in parts] == [(4, 4), (1, 4)]


@pytest.mark.parametrize("batch", [1, 7, 32, 1024])
def test_a_batch_has_as_many_tokens_as_asked(batch: int) -> None:
    draws = np.random.default_rng(batch)
    rows = [draws.integers(0, 9, length).tolist() for length in range(1, 60)]
    parts = next_token.batches(rows, batch, tokens_of_batch=1024)
    positions = [position for part in parts for pack in part.packs for position in pack.positions]
    assert sorted(positions) == list(range(len(rows)))
    for part in parts:
        assert part.size == 1 or part.size * part.width <= min(1024, batch * 32)
        assert len(part.packs) <= part.size


def test_long_prompts_run_in_small_batches() -> None:
    rows = [[number] * 900 for number in range(8)] + [[9] * 3000]
    parts = next_token.batches(rows, batch=1024, tokens_of_batch=4096)
    assert [(part.width, part.size) for part in parts] == [(3072, 1), (1024, 4), (1024, 4)]
