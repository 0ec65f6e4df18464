"""The classifier of messages and its training against the published one's numbers, and ensembles of
it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.nets import layout
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import classification
from motif_jax.oni.classification import LabelBatch
from tests.golden_numbers import GRADIENT, UPDATE, assert_golden, recipe_tensors

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


class ByteClassifier(MessageClassifier):
    """Logits that are two bytes of a message, the parameters, and with a key one random number for
    no.
    """

    def logits(
        self,
        params: Any,
        messages: jax.Array,
        max_length: int | None = None,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        logits = params + messages[:, :2] * 1.0
        if dropout_key is None:
            return logits
        return logits.at[:, 0].add(jax.random.normal(dropout_key))


# The logits of yes and no differ by 2, -2 and 0; the last message counts by half.
MESSAGES = np.array([[1, 3], [2, 0], [5, 5]], np.uint8)
TARGETS = np.array([1.0, 0.25, 0.75], np.float32)
WEIGHTS = np.array([2.0, 1.0, 0.5], np.float32)
BATCH = LabelBatch(MESSAGES, TARGETS, WEIGHTS)
DIFFERENCES = np.array([2.0, -2.0, 0.0])
# The second member leans to yes.
LEANINGS = np.array([0.0, 0.5])
MEMBERS = jnp.array([[0.0, 0.0], [0.0, 0.5]])


def loss_by_hand(leaning: float) -> float:
    yes = 1 / (1 + np.exp(-(DIFFERENCES + leaning)))
    cross_entropies = -(TARGETS * np.log(yes) + (1 - TARGETS) * np.log(1 - yes))
    return float(cross_entropies @ WEIGHTS / WEIGHTS.sum())


def slope_by_hand(leaning: float) -> float:
    """The derivative of the loss by the logit of yes; that of no is its negative."""
    yes = 1 / (1 + np.exp(-(DIFFERENCES + leaning)))
    return float((yes - TARGETS) @ WEIGHTS / WEIGHTS.sum())


@pytest.mark.parametrize(("member", "accuracy"), [(0, 3 / 3.5), (1, 1.0)])
def test_loss_and_accuracy_are_weighted_means(member: int, accuracy: float) -> None:
    loss = classification.make_loss(ByteClassifier(), 1, None)

    value, metrics = loss(MEMBERS[member], BATCH, None)

    assert float(value) == pytest.approx(loss_by_hand(LEANINGS[member]), rel=1e-5)
    assert float(metrics["loss"]) == float(value)
    # Equal logits mean no, which is wrong of the last message.
    assert float(metrics["accuracy"]) == pytest.approx(accuracy)


def test_the_loss_of_an_ensemble_sums_its_members() -> None:
    loss = classification.make_loss(ByteClassifier(), 2, None)

    value, metrics = loss(MEMBERS, BATCH, None)

    losses = [loss_by_hand(leaning) for leaning in LEANINGS]
    assert float(value) == pytest.approx(sum(losses), rel=1e-5)
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx((3 / 3.5 + 1) / 2)


def test_a_batch_without_weight_has_no_loss() -> None:
    loss = classification.make_loss(ByteClassifier(), 1, None)

    value, _ = loss(MEMBERS[0], BATCH._replace(weights=np.zeros(3, np.float32)), None)

    assert float(value) == 0.0


@pytest.mark.parametrize("members", [1, 2])
def test_a_step_moves_each_member_against_its_slope(members: int) -> None:
    optimizer = optax.sgd(0.5)
    params = MEMBERS[0] if members == 1 else MEMBERS
    step = classification.make_train_step(ByteClassifier(), optimizer, members)
    state = EnsembleState(params, jax.vmap(optimizer.init)(MEMBERS))

    new, metrics = jax.jit(step)(state, BATCH, None)

    slopes = np.array([slope_by_hand(leaning) for leaning in LEANINGS[:members]])
    change = np.stack([0.5 * slopes, -0.5 * slopes], axis=-1).reshape(params.shape)
    np.testing.assert_allclose(new.params, params + change, rtol=1e-5)
    assert float(metrics["gradient_norm"]) == pytest.approx(
        np.sqrt(2 * np.square(slopes).sum()), rel=1e-5
    )


def test_members_of_an_ensemble_drop_other_units() -> None:
    equal_members = jnp.zeros((2, 2))
    loss = classification.make_loss(ByteClassifier(), 2, None)
    key = jax.random.key(3)

    gradient = jax.grad(lambda params: loss(params, BATCH, key)[0])(equal_members)

    assert abs(float(gradient[0, 1] - gradient[1, 1])) > 1e-3


@pytest.mark.extra
def test_dropout_changes_the_loss_by_its_key() -> None:
    network = MessageClassifier("lt_cnn_small", dropout=0.5)
    params = network.init(jax.random.key(0))
    messages = np.full((4, 256), 65, np.uint8)
    one, same, other = (
        network.logits(params, messages, 96, jax.random.key(key)) for key in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(np.asarray(one) - np.asarray(other)).max() > 0
