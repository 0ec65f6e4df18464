"""Heads against numpy; their initial parameters, single columns, targets, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file
from scipy.special import erf

from motif_jax.core.errors import UserError
from motif_jax.ilql.text_task import soft_update
from motif_jax.lm import heads, weights
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.network import States
from tests.plain_layers import linear, normed, sigmoid

WIDTH = 6
VOCAB = 11
HEADS = Heads(
    WIDTH,
    {
        "value": HeadConfig(1, (9, 9), "sigmoid"),
        "actions": HeadConfig(4, (9, 9), "sigmoid"),
        "q": HeadConfig(VOCAB, (2 * WIDTH,)),
        "deep_q": HeadConfig(
            VOCAB, (4 * WIDTH,), "gelu", kind="residual", state="before", dropout=0.5
        ),
        "low_rank_q": HeadConfig(VOCAB, (2 * WIDTH,), rank=2),
        "linear": HeadConfig(3),
        "upvote": HeadConfig(1, (WIDTH, 2 * WIDTH), ("tanh", "relu")),
    },
)
# As one program: outside of one, each draw is compiled by itself while the tests are collected.
PARAMS = jax.jit(HEADS.init)(jax.random.key(0))
STATES = States(*jax.random.normal(jax.random.key(1), (2, 5, 3, WIDTH)))


AFTER = np.asarray(STATES.after, np.float64)


def plain_q(states: np.ndarray) -> np.ndarray:
    """Head "q" in numpy."""
    return linear(np.maximum(linear(states, PARAMS["q"]["hidden_0"]), 0), PARAMS["q"]["output"])


def test_a_head_of_one_output_has_no_last_axis() -> None:
    value = HEADS.apply(PARAMS, "value", STATES)

    hidden = AFTER
    for name in ("hidden_0", "hidden_1"):
        hidden = sigmoid(linear(hidden, PARAMS["value"][name]))
    expected = linear(hidden, PARAMS["value"]["output"])
    assert value.shape == (5, 3)
    np.testing.assert_allclose(value, expected[..., 0], rtol=1e-5)


def test_a_head_of_several_outputs_has_an_axis_of_them() -> None:
    assert HEADS.apply(PARAMS, "actions", STATES).shape == (5, 3, 4)


def test_a_head_computes_as_numpy_does() -> None:
    q = HEADS.apply(PARAMS, "q", STATES.after[0])

    np.testing.assert_allclose(q, plain_q(AFTER[0]), rtol=1e-5, atol=1e-6)


def test_a_head_in_bfloat16_gives_float32() -> None:
    q = Heads(WIDTH, HEADS.configs, jnp.bfloat16).apply(PARAMS, "q", STATES.after[0])

    assert q.dtype == jnp.float32
    np.testing.assert_allclose(q, plain_q(AFTER[0]), atol=0.03)


def test_a_head_without_hidden_layers_is_linear() -> None:
    outputs = HEADS.apply(PARAMS, "linear", STATES)

    np.testing.assert_allclose(
        outputs, linear(AFTER, PARAMS["linear"]["output"]), rtol=1e-5, atol=1e-6
    )


def test_chosen_outputs_are_columns_of_all() -> None:
    outputs = HEADS.chosen(PARAMS, "q", STATES.after[0], jnp.array([0, 10, 4]))

    expected = plain_q(AFTER[0])[np.arange(3), [0, 10, 4]]
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


def test_a_poolers_layer_comes_first_in_a_head_of_roberta(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    pooler = {"kernel": draws.normal(size=(WIDTH, WIDTH)), "bias": draws.normal(size=WIDTH)}
    tensors = {
        "roberta.pooler.dense.weight": pooler["kernel"].T.copy(),
        "roberta.pooler.dense.bias": pooler["bias"],
    }
    save_file(tensors, tmp_path / weights.SINGLE)

    loaded_pooler = weights.load_pooler(tmp_path)

    assert loaded_pooler is not None
    layers = {**PARAMS["upvote"], "hidden_0": loaded_pooler}
    logit = HEADS.apply({"upvote": layers}, "upvote", STATES)
    hidden = np.tanh(linear(AFTER, pooler))
    hidden = np.maximum(linear(hidden, layers["hidden_1"]), 0)
    np.testing.assert_allclose(
        logit, linear(hidden, layers["output"])[..., 0], rtol=1e-4, atol=1e-5
    )


def test_a_pooler_without_its_weights_is_none(tmp_path: Path) -> None:
    save_file({"roberta.pooler.dense.bias": np.zeros(WIDTH)}, tmp_path / weights.SINGLE)

    assert weights.load_pooler(tmp_path) is None


# A first norm that changes its input, unlike a fresh one.
DEEP_Q = {**PARAMS["deep_q"], "first_norm": {"scale": jnp.arange(6.0), "bias": jnp.ones(6)}}


def plain_deep_q(passes: np.ndarray | None = None) -> np.ndarray:
    """Head "deep_q" in numpy; dropout of a half lets through the features `passes`, bool [D]."""
    x = np.asarray(STATES.before, np.float64)
    branch = linear(normed(x, DEEP_Q["first_norm"]), DEEP_Q["hidden_0"])
    branch = branch * (1 + erf(branch / np.sqrt(2))) / 2
    branch = linear(branch, DEEP_Q["hidden_1"])
    if passes is not None:
        branch = np.where(passes, 2 * branch, 0)
    return linear(normed(x + branch, DEEP_Q["second_norm"]), DEEP_Q["output"])


def test_a_residual_head_reads_the_states_before_the_last_norm() -> None:
    q = HEADS.apply({"deep_q": DEEP_Q}, "deep_q", STATES)

    np.testing.assert_allclose(q, plain_deep_q(), rtol=1e-4, atol=1e-5)


def test_chosen_outputs_of_a_residual_head_are_columns_of_all() -> None:
    column = HEADS.chosen({"deep_q": DEEP_Q}, "deep_q", STATES, jnp.full((5, 3), 4))

    np.testing.assert_allclose(column, plain_deep_q()[..., 4], rtol=1e-4, atol=1e-5)


def test_dropout_scales_what_it_lets_through_of_the_residual_branch(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        jax.random, "bernoulli", lambda key, share, shape: jnp.arange(6) < share * 8
    )

    q = HEADS.apply({"deep_q": DEEP_Q}, "deep_q", STATES, dropout=jax.random.key(2))

    np.testing.assert_allclose(q, plain_deep_q(np.arange(6) < 4), rtol=1e-4, atol=1e-5)


def test_a_fresh_head_with_a_rank_says_the_same_of_all_outputs() -> None:
    """Times any weight it leaves a policy's probabilities as they are."""
    q = np.asarray(HEADS.apply(PARAMS, "low_rank_q", STATES))

    np.testing.assert_array_equal(q, np.broadcast_to(q[..., :1], q.shape))
    assert q[..., 0].std() > 0.01


def test_outputs_of_a_head_with_a_rank_share_a_number_of_the_state() -> None:
    layers = dict(PARAMS["low_rank_q"])
    b = np.random.default_rng(0).normal(size=(2, VOCAB))
    layers["output"] = {**layers["output"], "b": jnp.asarray(b, jnp.float32)}

    q = HEADS.apply({"low_rank_q": layers}, "low_rank_q", STATES)
    columns = HEADS.chosen({"low_rank_q": layers}, "low_rank_q", STATES, jnp.full((5, 3), 4))

    hidden = np.maximum(linear(AFTER, layers["hidden_0"]), 0)
    expected = linear(hidden, layers["shared"]) + hidden @ layers["output"]["a"] @ b
    np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(columns, expected[..., 4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("value/hidden_1/kernel", 9),
        ("q/output/bias", 2 * WIDTH),
        ("deep_q/hidden_0/bias", WIDTH),
        ("low_rank_q/output/a", 2 * WIDTH),
    ],
)
def test_fresh_layers_are_uniform_within_one_over_root_inputs(name: str, inputs: int) -> None:
    leaf = np.abs(flatten_dict(PARAMS, sep="/")[name])

    assert 0.7 < leaf.max() * np.sqrt(inputs) <= 1


def test_heads_of_equal_shape_start_differently() -> None:
    leaves = flatten_dict(PARAMS, sep="/")
    assert not np.array_equal(leaves["value/hidden_0/kernel"], leaves["actions/hidden_0/kernel"])


def test_a_target_moves_towards_the_online_parameters() -> None:
    target = soft_update({"q": jnp.zeros(2)}, {"q": jnp.array([1.0, 2.0])}, jnp.int32(1))

    np.testing.assert_allclose(target["q"], [0.005, 0.01], rtol=1e-6)


def test_a_target_is_copied_at_intervals() -> None:
    target = {"q": jnp.zeros(1)}
    online = {"q": jnp.ones(1)}
    values = []

    for step in range(1, 5):
        target = soft_update(target, online, jnp.int32(step), 0.5, copy_every=3)
        values.append(float(target["q"][0]))
        online = {"q": online["q"] + 1}

    # Half of the way to 1 and 2, a copy of 3, half of the way to 4.
    assert values == [0.5, 1.25, 3.0, 3.5]


@pytest.fixture
def saved_heads(tmp_path: Path) -> Path:
    heads.save(tmp_path, HEADS, PARAMS)
    return tmp_path


def test_heads_survive_saving_and_loading(saved_heads: Path) -> None:
    loaded_heads, params = heads.load(saved_heads, WIDTH)

    assert dict(loaded_heads.configs) == dict(HEADS.configs)
    jax.tree.map(np.testing.assert_array_equal, params, PARAMS)


def test_a_folder_without_heads_has_none(tmp_path: Path) -> None:
    loaded_heads, params = heads.load(tmp_path, WIDTH)

    assert not loaded_heads.configs
    assert params == {}


def test_heads_with_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    name = next(iter(PARAMS))
    bias = np.full_like(np.asarray(PARAMS[name]["output"]["bias"]), np.nan)
    damaged = {**PARAMS, name: {**PARAMS[name], "output": {**PARAMS[name]["output"], "bias": bias}}}
    heads.save(tmp_path, HEADS, damaged)
    with pytest.raises(UserError, match=rf"{name}\.output\.bias: NaN or infinite numbers saved"):
        heads.load(tmp_path, WIDTH)
