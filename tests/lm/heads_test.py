"""Heads against numpy; their beginning, single columns, targets, and files."""

from __future__ import annotations

import json
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
from motif_jax.ilql.agent.target_network import soft_update
from motif_jax.lm import heads, weights
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.network import States
from tests.plain_layers import linear, normed, sigmoid

WIDTH, VOCAB = 6, 11
HEADS = Heads(
    WIDTH,
    {
        "value": HeadConfig(1, (9, 9), "sigmoid"),
        "actions": HeadConfig(4, (9, 9), "sigmoid"),
        "q": HeadConfig(VOCAB, (2 * WIDTH,)),
        "deep_q": HeadConfig(VOCAB, (4 * WIDTH,), "gelu", kind="residual", state="before", dropout=0.5),
        "linear": HeadConfig(3),
        "upvote": HeadConfig(1, (WIDTH, 2 * WIDTH), ("tanh", "relu")),
        "pessimist": HeadConfig(VOCAB, (WIDTH,), constant=-4.4),
    },
)
PARAMS = HEADS.init(jax.random.key(0))
STATES = States(*jax.random.normal(jax.random.key(1), (2, 5, 3, WIDTH)))


def test_a_head_is_its_layers_with_the_activation_between_them() -> None:
    hidden = after = np.asarray(STATES.after, np.float64)
    layers = PARAMS["value"]
    for name in ("hidden_0", "hidden_1"):
        hidden = sigmoid(linear(hidden, layers[name]))
    value = HEADS.apply(PARAMS, "value", STATES)
    assert value.shape == (5, 3)
    np.testing.assert_allclose(value, linear(hidden, layers["output"])[..., 0], rtol=1e-5)
    assert HEADS.apply(PARAMS, "actions", STATES).shape == (5, 3, 4)
    q = linear(np.maximum(linear(after[0], PARAMS["q"]["hidden_0"]), 0), PARAMS["q"]["output"])
    np.testing.assert_allclose(HEADS.apply(PARAMS, "q", STATES.after[0]), q, rtol=1e-5, atol=1e-6)
    short = Heads(WIDTH, HEADS.configs, jnp.bfloat16).apply(PARAMS, "q", STATES.after[0])
    assert short.dtype == jnp.float32
    np.testing.assert_allclose(short, q, atol=0.03)
    plain = linear(after, PARAMS["linear"]["output"])
    np.testing.assert_allclose(HEADS.apply(PARAMS, "linear", STATES), plain, rtol=1e-5, atol=1e-6)
    column = HEADS.chosen(PARAMS, "q", STATES.after[0], jnp.array([0, 10, 4]))
    np.testing.assert_allclose(column, q[np.arange(3), [0, 10, 4]], rtol=1e-5, atol=1e-6)


def test_a_poolers_layer_comes_first_in_a_head_of_roberta(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    pooler = {"kernel": draws.normal(size=(WIDTH, WIDTH)), "bias": draws.normal(size=WIDTH)}
    file = {"weight": pooler["kernel"].T.copy(), "bias": pooler["bias"]}
    save_file({f"roberta.pooler.dense.{name}": x for name, x in file.items()}, tmp_path / weights.SINGLE)
    found = weights.load_pooler(tmp_path)
    assert found is not None
    layers = {**PARAMS["upvote"], "hidden_0": found}
    hidden = np.maximum(linear(np.tanh(linear(np.asarray(STATES.after), pooler)), layers["hidden_1"]), 0)
    logit = HEADS.apply({"upvote": layers}, "upvote", STATES)
    np.testing.assert_allclose(logit, linear(hidden, layers["output"])[..., 0], rtol=1e-4, atol=1e-5)
    save_file({"roberta.pooler.dense.bias": pooler["bias"]}, tmp_path / weights.SINGLE)
    assert weights.load_pooler(tmp_path) is None


def test_a_residual_head_reads_the_states_before_the_last_norm(monkeypatch: Any) -> None:
    changed = {**PARAMS["deep_q"], "first_norm": {"scale": jnp.arange(6.0), "bias": jnp.ones(6)}}
    params = {**PARAMS, "deep_q": changed}
    x = np.asarray(STATES.before, np.float64)
    inner = linear(normed(x, changed["first_norm"]), changed["hidden_0"])
    outer = x + linear(inner * (1 + erf(inner / np.sqrt(2))) / 2, changed["hidden_1"])
    expected = linear(normed(outer, changed["second_norm"]), changed["output"])
    np.testing.assert_allclose(HEADS.apply(params, "deep_q", STATES), expected, rtol=1e-4, atol=1e-5)
    column = HEADS.chosen(params, "deep_q", STATES, jnp.full((5, 3), 4))
    np.testing.assert_allclose(column, expected[..., 4], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(jax.random, "bernoulli", lambda key, share, shape: jnp.arange(6) < share * 8)
    dropped = HEADS.apply(params, "deep_q", STATES, dropout=jax.random.key(2))
    outer = x + np.where(np.arange(6) < 4, 2 * (outer - x), 0)
    expected = linear(normed(outer, changed["second_norm"]), changed["output"])
    np.testing.assert_allclose(dropped, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("value/hidden_1/kernel", 9), ("q/output/bias", 2 * WIDTH), ("deep_q/hidden_0/bias", WIDTH)],
)
def test_layers_start_as_pytorchs(name: str, inputs: int) -> None:
    """Uniform up to one over the root of a layer's inputs."""
    leaf = np.abs(flatten_dict(PARAMS, sep="/")[name])
    assert 0.7 < leaf.max() * np.sqrt(inputs) <= 1


def test_heads_of_equal_shape_start_differently() -> None:
    leaves = flatten_dict(PARAMS, sep="/")
    assert not np.array_equal(leaves["value/hidden_0/kernel"], leaves["actions/hidden_0/kernel"])


def test_a_constant_head_begins_with_its_constant() -> None:
    np.testing.assert_array_equal(HEADS.apply(PARAMS, "pessimist", STATES), np.float32(-4.4))


def test_a_target_goes_part_of_the_way_and_is_copied_whole_at_intervals() -> None:
    target, online = {"q": jnp.zeros(2)}, {"q": jnp.array([1.0, 2.0])}
    np.testing.assert_allclose(soft_update(target, online, jnp.int32(1))["q"], [0.005, 0.01], rtol=1e-6)
    found = []
    for step in range(1, 5):
        target = soft_update(target, online, jnp.int32(step), 0.5, copy_every=3)
        found.append(float(target["q"][0]))
        online = {"q": online["q"] + 1}
    assert found == [0.5, 1.25, 3.0, 3.5]


def test_heads_are_saved_and_read_by_their_names(tmp_path: Path) -> None:
    heads.save(tmp_path, HEADS, PARAMS)
    found, params = heads.load(tmp_path, WIDTH)
    assert dict(found.configs) == dict(HEADS.configs)
    jax.tree.map(np.testing.assert_array_equal, params, PARAMS)
    with pytest.raises(UserError, match="width 6, the model has width 8"):
        heads.load(tmp_path, 8)
    values = json.loads((tmp_path / heads.FILE).read_text())
    misfit = ("outputs", VOCAB + 1, r"q\.output\.bias is \[11\], \[12\] exp")
    for key, value, said in (misfit, ("sort", 1, "sort")):
        values["heads"]["q"][key] = value
        (tmp_path / heads.FILE).write_text(json.dumps(values))
        with pytest.raises(UserError, match=said):
            heads.load(tmp_path, WIDTH)
    (tmp_path / heads.WEIGHTS).write_bytes(b"PK")
    with pytest.raises(UserError, match="cannot be read"):
        heads.load(tmp_path, WIDTH)
    assert not heads.load(tmp_path / "none", WIDTH)[0].configs


def test_heads_with_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    name = next(iter(PARAMS))
    bias = np.full_like(np.asarray(PARAMS[name]["output"]["bias"]), np.nan)
    damaged = {**PARAMS, name: {**PARAMS[name], "output": {**PARAMS[name]["output"], "bias": bias}}}
    heads.save(tmp_path, HEADS, damaged)
    with pytest.raises(UserError, match=rf"{name}\.output\.bias is damaged"):
        heads.load(tmp_path, WIDTH)
