"""CHAI: its loss against plain numpy written from the paper."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql import methods
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.config import IlqlCompat
from motif_jax.ilql.methods import TextBatch
from motif_jax.ilql.objective import Objective
from tests.golden_ilql import item_of
from tests.ilql.objective_test import (
    GAMMA,
    TEXTS,
    batch_of,
    changed,
    objective_of,
    parameters,
)

WIDTH = 8
COUNT = 3


@pytest.fixture(scope="module")
def objective() -> Objective:
    design = Design("mean", v=False, separate_policy=False, separate_target=False)
    return objective_of("chai", design=design)


@pytest.fixture(scope="module")
def batch() -> TextBatch:
    draws = np.random.default_rng(0)
    means = draws.normal(size=(3, 3, COUNT, WIDTH)).astype(np.float32)
    log_probs = -draws.random((3, 3, COUNT)).astype(np.float32) * 5
    candidates = methods.Candidates(means, log_probs, np.arange(3, dtype=np.uint32))
    return batch_of(by_utterance=True)._replace(candidates=candidates)


def test_random_states_are_between_minus_one_and_one() -> None:
    states = methods.random_states(jnp.arange(3, dtype=jnp.uint32), 2, COUNT, WIDTH)

    assert (np.abs(states) < 1).all()
    assert np.std(states) > 0.5


def head_output(layers: Any, state: np.ndarray) -> np.ndarray:
    hidden = np.maximum(
        state @ np.asarray(layers["hidden_0"]["kernel"]) + layers["hidden_0"]["bias"], 0
    )
    return (hidden @ np.asarray(layers["output"]["kernel"]) + layers["output"]["bias"])[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize("published", [False, True])
def test_the_loss_is_the_published_one(
    objective: Objective, batch: TextBatch, published: bool
) -> None:
    """An utterance at a time. The first dialogue is unfinished: its last state has candidates too,
    in the published code none.
    """
    compat = IlqlCompat(chai_scores=published, ilql_next_q_zero=published)
    objective = changed(objective, compat=compat)
    learned, frozen, part = parameters(objective, batch)
    frozen = {"trunks": learned.pop("trunks"), "target": {"heads": frozen["target"]["heads"]}}

    terms = jax.jit(objective.terms)({**learned, "trunks": {}}, frozen, part, None)

    trunk = frozen["trunks"]["values"]
    prefill = jax.jit(objective.agent.model.prefill)
    states = np.asarray(prefill(trunk, batch.tokens, batch.valid)[0].after, np.float64)
    seeds = jnp.arange(3, dtype=jnp.uint32)
    random_states = np.asarray(methods.random_states(seeds, 2, COUNT, WIDTH), np.float64)
    candidates = np.asarray(batch.candidates.states, np.float64)
    log_probs = np.asarray(batch.candidates.log_probs, np.float64)
    # Of a uniform state in [-1, 1]^WIDTH; published: the log of a sum instead of the sum of logs.
    random_log_prob = -math.log(2 * WIDTH) if published else -WIDTH * math.log(2)
    target_heads = [frozen["target"]["heads"][name] for name in ("q1", "q2")]
    heads = [learned["heads"][name] for name in ("q1", "q2")]

    q_loss = conservative = 0.0
    utterances = 0
    for row, text in enumerate(TEXTS):
        ends = list(item_of(text, 0.0).utterance_action_indices)
        for k, end in enumerate(ends):
            next_qs = [head_output(layers, candidates[row, k + 1]) for layers in target_heads]
            is_end = k == len(ends) - 1 and (text.endswith("</eod>") or published)
            bellman_target = -1.0
            if not is_end:
                bellman_target += GAMMA * np.minimum(*next_qs).max()
            for layers in heads:
                q = head_output(layers, states[row, : end + 1].mean(axis=0))
                q_loss += (bellman_target - q) ** 2
                of_candidates = head_output(layers, candidates[row, k]) - log_probs[row, k]
                of_random_states = head_output(layers, random_states[row, k]) - random_log_prob
                scores = np.ravel([of_candidates, of_random_states])
                if published:
                    conservative += np.logaddexp.reduce(scores / (2 * COUNT)) - q
                else:
                    conservative += np.logaddexp.reduce(scores) - math.log(2 * COUNT) - q
            utterances += 1

    expected = {
        "q": q_loss / utterances,
        "conservative": conservative / utterances,
        "loss": (q_loss + 0.1 * conservative) / utterances,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(terms, name), value, rtol=1e-4, err_msg=name)
