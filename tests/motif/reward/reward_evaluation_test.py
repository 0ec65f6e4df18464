"""Statistics of a reward, metrics of pairs, and the batches of a training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.targets import PairTargets, hard_targets
from motif_jax.motif.reward import reward_data
from motif_jax.motif.reward import reward_evaluation as evaluation
from motif_jax.motif.reward.config import Ensemble, RewardConfig
from motif_jax.motif.reward.normalisation import RunningMoments
from motif_jax.motif.reward.reward_data import BatchPlan, RewardData

# The messages of each pair's steps, and the target of each pair.
IDS = "0121 3310 2430 1112 0440 1022 2301 5125 5565 6301"
FIRST_IS_BETTER = np.array([0.9, 0.2, 0.5, 0.3, 0.5, 0.8, 0.1, 0.7, 0.4, 0.25], np.float32)
WEIGHTS = np.array([1, 0.5, 1, 0.25, 0, 1, 0.5, 1, 0.75, 0], np.float32)


def data_of(**changes: Any) -> RewardData:
    """Ten pairs of two steps, with seven messages."""
    labels = np.array([0, 1, 2, 1, 2, 0, 1, 0, 1, 1], np.int8)
    targets = np.stack([FIRST_IS_BETTER, 1 - FIRST_IS_BETTER], axis=1)
    status = np.arange(40).reshape(10, 2, 2, 1)
    dataset = PairsDataset(Path("in_memory"), {}, num_pairs=10, length=2)
    dataset.data = {"blstats": status}
    data = RewardData(
        dataset=dataset,
        messages=np.eye(7, 256, -1, np.uint8),
        ids=np.array([int(digit) for digit in IDS.replace(" ", "")], np.int32).reshape(10, 2, 2),
        max_length=1,
        targets=PairTargets(labels, targets * 0.8 + 0.1, targets, WEIGHTS),
        train=np.array([0, 2, 3, 4, 5]),
        validation=np.array([1, 6, 7, 8, 9]),
        score=np.array([0, 1, 1, 0, 2, 0, 1, 1, 2, 0], np.int8),
        fields=("blstats",),
        digests={},
    )
    return dataclasses.replace(data, **changes)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_messages_are_counted_over_the_training_part() -> None:
    data = data_of()

    assert data.counts.tolist() == [5, 6, 5, 1, 3, 0, 0]
    assert [part.tolist() for part in data.unseen()] == [[0, 0, 0, 1, 0], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("message_only", [True, False])
def test_statistics_are_those_of_all_training_steps(message_only: bool) -> None:
    """Two members; rewards of distinct messages, or of the steps themselves."""
    data = data_of()
    values = drawn(2, 7) if message_only else drawn(2, 10, 2, 2)
    steps = values[:, data.ids[data.train]] if message_only else values[:, data.train]
    members = steps.reshape(2, -1).astype(np.float64)
    ensemble = members.mean(axis=0)

    statistics = evaluation.reward_statistics(values, data, message_only, False, 2)

    assert statistics["mean"] == pytest.approx(ensemble.mean(), abs=1e-6)
    assert statistics["variance"] == pytest.approx(ensemble.var(), rel=1e-5)
    assert statistics["member_mean"] == pytest.approx(members.mean(axis=1), abs=1e-6)
    assert statistics["member_variance"] == pytest.approx(members.var(axis=1), rel=1e-5)
    assert statistics["num_steps"] == 20
    assert statistics["num_pairs"] == 5
    assert statistics["num_distinct"] == (5 if message_only else 20)


def test_quantiles_are_of_the_normalised_distinct_rewards() -> None:
    statistics = evaluation.reward_statistics(drawn(2, 7), data_of(), True, False, 2)

    # Two of the seven messages are of the validation part alone.
    normalised = (drawn(2, 7)[:, :5].mean(axis=0) - statistics["mean"]) / np.sqrt(
        statistics["variance"]
    )
    assert min(normalised) - 1e-6 <= statistics["quantiles"][0] <= statistics["quantiles"][-1]
    assert statistics["quantiles"][-1] <= max(normalised) + 1e-6
    assert statistics["quantiles"] == sorted(statistics["quantiles"])


def test_advice_without_an_empty_text_goes_by_comparisons_and_lists_few_texts() -> None:
    """Message 0 is read as the empty one unless it has a letter."""
    messages = np.eye(7, 256, -1, np.uint8) * 65
    messages[0, 0] = 90
    data = data_of(messages=messages)
    rewards = np.array([[3.0, -1.0, 0.5, 2.0, -2.0, 1.0, 0.0]], np.float32)

    advice = evaluation.reward_statistics(rewards, data, True, False, 2)["advice"]

    assert not advice["has_empty"]
    assert advice["paid_share"] <= 0.5
    assert advice["threshold"] < advice["few_texts"][0]["reward"]
    assert [text["reward"] for text in advice["few_texts"]] == sorted(
        (text["reward"] for text in advice["few_texts"]), reverse=True
    )
    assert sum(text["steps_share"] for text in advice["few_texts"]) == pytest.approx(1.0)
    with_empty = evaluation.reward_statistics(rewards, data_of(), True, False, 2)["advice"]
    assert with_empty["has_empty"]


def test_disagreement_is_the_deviation_of_the_members_normalised_rewards() -> None:
    values = drawn(2, 10, 2, 2)
    data = data_of()
    members = values[:, data.train].reshape(2, -1).astype(np.float64)
    normalised = (members - members.mean(axis=1, keepdims=True)) / members.std(
        axis=1, keepdims=True
    )

    statistics = evaluation.reward_statistics(values, data, False, False, 2)

    assert statistics["disagreement"] == pytest.approx(normalised.std(axis=0).mean(), rel=1e-4)
    assert statistics["advice"] is None, "thresholds are advised to rewards of the message alone"


def test_running_statistics_are_merged_batch_by_batch() -> None:
    values = drawn(2, 10, 2, 2)
    data = data_of()
    moments = RunningMoments()
    for pairs in (data.train[:2], data.train[2:4], data.train[4:]):
        moments.update(values.mean(axis=0)[pairs])

    statistics = evaluation.reward_statistics(values, data, False, True, 2)

    assert (statistics["mean"], statistics["variance"]) == (moments.mean, moments.variance)


def test_metrics_of_pairs_are_weighted_and_leave_out_ties() -> None:
    data = data_of()
    rewards = drawn(10, 2)
    part = data.validation
    labels = data.targets.labels[part]
    weights = data.targets.weights[part].astype(np.float64)
    log_probabilities = rewards - np.log(np.exp(rewards).sum(axis=1, keepdims=True))
    losses = -(data.targets.unsmoothed[part] * log_probabilities[part]).sum(axis=1)

    metrics = evaluation.evaluate_pairs(rewards, data, 2)

    assert metrics["validation/loss"] == pytest.approx(
        (losses * weights).sum() / weights.sum(), rel=1e-5
    )
    # Of the pairs with a weight; the last of the five has none.
    counted = weights > 0
    is_correct = rewards[part].argmax(axis=1) == labels
    assert metrics["validation/loss_pairs"] == counted.sum() == 4
    assert metrics["validation/accuracy"] == pytest.approx(is_correct[counted].mean())


def test_metrics_of_no_pairs_are_nan() -> None:
    few = data_of(validation=np.array([4]), score=None)

    metrics = evaluation.evaluate_pairs(drawn(10, 2), few, 2)

    assert metrics["validation/loss_pairs"] == metrics["validation/accuracy_pairs"] == 0
    assert np.isnan(metrics["validation/loss"])
    assert np.isnan(metrics["validation/score_accuracy"])


def plan_of(devices: int = 1, members: int = 1, seed: int = 3) -> BatchPlan:
    """Two epochs of five pairs in batches of two."""
    config = RewardConfig(
        batch_size=2,
        chunk_steps=2,
        epochs=2,
        seed=seed,
        ensemble=Ensemble(members=members),
    )
    return BatchPlan(data_of(), config, devices)


def test_an_epoch_shows_every_training_pair_once() -> None:
    plan = plan_of()

    assert (plan.steps_per_epoch, plan.chunk_steps) == (3, 2)
    orders = [plan.order(epoch) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.ravel().tolist()) == [-1, 0, 2, 3, 4, 5]
        assert order.ravel().tolist()[-1] == -1, "the last batch is not full"
    assert orders[0].tolist() != orders[1].tolist()


@pytest.mark.parametrize("devices", [1, 2])
def test_steps_of_a_batch_are_indices_of_its_distinct_messages(devices: int) -> None:
    plan = plan_of(devices)
    data = data_of()

    for first, count in ((0, 2), (2, 1), (3, 2)):
        batch = plan.batches(first, count)
        epoch, start = divmod(first, 3)
        pairs = plan.order(epoch)[start : start + count]
        unique = batch.unique.reshape(count, devices, plan.bucket)
        share = 2 // devices
        for step, column in np.ndindex(pairs.shape):
            messages = unique[step, column // share][batch.inverse[step, column]]
            expected = max(0, pairs[step, column])
            np.testing.assert_array_equal(messages, data.ids[expected])
            np.testing.assert_array_equal(
                batch.rows["blstats"][step, column], data.dataset.data["blstats"][expected]
            )


def test_padding_of_a_batch_has_no_weight() -> None:
    batch = plan_of(members=2).batches(2, 1)

    assert batch.weights[0, :, 1].tolist() == [0, 0]
    assert batch.labels[0, 1] == 2


def test_a_batch_does_not_depend_on_those_read_before() -> None:
    plan = plan_of()
    early = plan.batches(1, 2)
    plan.batches(3, 2)

    jax.tree.map(np.testing.assert_array_equal, plan.batches(1, 2), early)
    assert jax.tree.structure(reward_data.axes(early)) == jax.tree.structure(early)


def test_calibration_of_a_known_case():
    # Confidence 0.75 twice (right once), 0.95 once (right), a tie that does not count.
    log_odds = np.log(np.array([3.0, 3.0, 19.0, 5.0]))
    rewards = np.stack([log_odds, np.zeros(4)], axis=1)

    labels = np.array([0, 1, 0, 2])
    curve = evaluation.calibration(rewards, hard_targets(labels), labels)

    assert curve["error"] == pytest.approx((2 * abs(0.5 - 0.75) + abs(1 - 0.95)) / 3)
    assert [row["pairs"] for row in curve["bins"]] == [2, 1]
    nothing = evaluation.calibration(rewards[:0], np.zeros((0, 2)), np.zeros(0, int))
    assert np.isnan(nothing["error"])


def test_soft_labels_are_calibrated_by_their_probabilities():
    """A reward that has learned the judge's 0.6 in every pair is calibrated, though its order is
    always that of the labels.
    """
    targets = np.array([[0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.5, 0.5]])
    rewards = np.log(targets)
    labels = np.array([0, 1, 0, 2])

    curve = evaluation.calibration(rewards, targets, labels)

    assert curve["error"] == pytest.approx(0.0, abs=1e-9)
    assert curve["bins"] == [
        {"confidence": pytest.approx(0.6), "accuracy": pytest.approx(0.6), "pairs": 3}
    ]
    assert evaluation.calibration(rewards, hard_targets(labels), labels)["error"] == pytest.approx(
        0.4
    )


def test_cross_entropy_is_stable():
    rewards = np.array([[1000.0, 0.0], [0.0, 1000.0], [1.0, 1.0]], np.float32)
    targets = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(
        evaluation.held_out_cross_entropy(rewards, targets), [0, 1000, np.log(2)], rtol=1e-6
    )
