"""The classifier of messages and its training against the published one's numbers, and ensembles of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.nets import layout
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import classification_loss as classification
from motif_jax.oni.classification_loss import LabelBatch
from tests.golden_numbers import GRADIENT, UPDATE, assert_golden, recipe_tensors

pytestmark = pytest.mark.usefixtures("compiled_quickly")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def network() -> MessageClassifier:
    return MessageClassifier(dropout=0.0)


def recipe(network: MessageClassifier, golden: Any) -> Any:
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return layout.from_torch(recipe_tensors(golden("oni/oni_classifier_shapes.json")), shapes)


@pytest.mark.slow
def test_forward_and_thresholds_equal_golden(network: MessageClassifier, golden: Any) -> None:
    g = golden("oni/oni_classifier.npz")
    params = recipe(network, golden)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 471_554
    messages = jnp.asarray(g["message"])
    np.testing.assert_allclose(network.logits(params, messages), g["logits"], **CLOSE)
    probability = np.asarray(network.probability(params, messages))
    np.testing.assert_allclose(probability, g["probability_of_class_1"], **CLOSE)
    for threshold in (0.3, 0.5, 0.7):
        np.testing.assert_array_equal(probability > threshold, g[f"prediction_at_{threshold}"])
    params["classifier_head"]["bias"] = g["shifted/classifier_head_bias"]
    np.testing.assert_allclose(network.logits(params, messages), g["shifted/logits"], **CLOSE)
    shifted = np.asarray(network.probability(params, messages)) > 0.5
    np.testing.assert_array_equal(shifted, g["shifted/prediction_at_0.5"])


@pytest.mark.slow
def test_one_step_equals_golden(network: MessageClassifier, golden: Any) -> None:
    g = golden("oni/oni_classifier.npz")
    params = recipe(network, golden)
    optimizer = optax.adam(float(g["train/learning_rate"]), eps=float(g["train/adam_eps"]))
    # Rows of padding count for nothing.
    messages = np.concatenate([g["train/message"], np.full((3, 256), 7, np.uint8)])
    targets = np.concatenate([g["train/labels"], [1, 0, 1]]).astype(np.float32)
    batch = LabelBatch(messages, targets, (np.arange(35) < 32).astype(np.float32))
    loss = classification.make_loss(network, 1, None)
    gradient, metrics = jax.jit(jax.grad(loss, has_aux=True))(params, batch, None)
    np.testing.assert_allclose(metrics["loss"], g["train/loss"], rtol=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(float(g["train/accuracy"]))
    assert_golden(layout.to_torch(gradient), g, "train/gradient", GRADIENT)
    state = EnsembleState(params, optimizer.init(params))
    new, _ = jax.jit(classification.make_train_step(network, optimizer))(state, batch, None)
    change = jax.tree.map(lambda a, b: np.asarray(a, np.float64) - b, new.params, params)
    assert_golden(layout.to_torch(change), g, "train/update", UPDATE)


def test_the_loss_and_its_step_by_hand() -> None:
    """Of a network whose logits are two bytes of a message and its parameters."""
    network: Any = SimpleNamespace(
        logits=lambda params, messages, length, key: params + messages[:, :2] * 1.0
    )
    messages = np.array([[1, 3], [2, 0], [5, 5]], np.uint8)
    targets = np.array([1.0, 0.25, 0.75], np.float32)
    weights = np.array([2.0, 1.0, 0.5], np.float32)
    batch = LabelBatch(messages, targets, weights)
    members = jnp.array([[0.0, 0.0], [0.0, 0.5]])
    apart = np.array([2.0, -2.0, 0.0]) + np.array([[0.0], [0.5]])
    yes = 1 / (1 + np.exp(-apart))
    losses = -(targets * np.log(yes) + (1 - targets) * np.log(1 - yes)) @ weights / 3.5
    slopes = (yes - targets) @ weights / 3.5
    for number, params in ((1, members[0]), (2, members)):
        step = classification.make_train_step(network, optax.sgd(0.5), number)
        state = EnsembleState(params, jax.vmap(optax.sgd(0.5).init)(members))
        new, metrics = jax.jit(step)(state, batch, None)
        change = np.stack([0.5 * slopes, -0.5 * slopes], axis=-1)[:number].reshape(params.shape)
        np.testing.assert_allclose(new.params, params + change, rtol=1e-5)
        norm = np.sqrt(2 * np.sum(np.square(slopes[:number])))
        # Without its half the last message's equal logits mean no.
        right = np.array([3 / 3.5, 1.0])[:number].mean()
        wanted = {"loss": losses[:number].mean(), "accuracy": right, "gradient_norm": norm}
        assert {name: float(value) for name, value in metrics.items()} == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
def test_dropout_changes_the_loss_by_its_key() -> None:
    network = MessageClassifier("lt_cnn_small", dropout=0.5)
    params = network.init(jax.random.key(0))
    messages = np.full((4, 256), 65, np.uint8)
    one, same, other = (network.logits(params, messages, 96, jax.random.key(key)) for key in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(np.asarray(one) - np.asarray(other)).max() > 0
