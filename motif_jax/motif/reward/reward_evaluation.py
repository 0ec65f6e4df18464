"""Metrics of a reward model after every epoch, in float64 on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.pairs.targets import TIE
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS, Normalisation
from motif_jax.motif.reward.reward_data import RewardData
from motif_jax.motif.reward.statistics import RunningMoments, quantiles, weighted_moments

CALIBRATION_BINS = 10


def cross_entropy(rewards: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """-sum_k q_k log softmax(rewards)_k, float64 [N], of rewards and targets [N, 2]."""
    rewards = rewards.astype(np.float64)
    log_sum = np.logaddexp(rewards[:, 0], rewards[:, 1])
    return -(targets * (rewards - log_sum[:, None])).sum(axis=1)


def accuracy(rewards: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """Share of the pairs without ties whose order by `rewards` [N, 2] is that of `labels` [N], and their number."""
    counted = labels < TIE
    right = rewards.argmax(axis=1)[counted] == labels[counted]
    return (float(right.mean()) if right.size else float("nan")), int(right.size)


def mean_over_batches(values: np.ndarray, counted: np.ndarray, size: int) -> float:
    """The published mean: the mean over batches of `size` of the mean over their counted entries."""
    means = []
    for start in range(0, len(values), size):
        chosen = values[start : start + size][counted[start : start + size]]
        if chosen.size:
            means.append(chosen.mean())
    return float(np.mean(means)) if means else float("nan")


def calibration(rewards: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Expected calibration error of rewards [N, 2] for labels int [N] without ties (Guo et al. 2017).

    Returns:
      `error`, the mean of |accuracy - confidence| of equal bins of the confidence in [1/2, 1], weighted by pairs; and `bins`:
      rows of mean confidence, accuracy and number of pairs, without empty bins.
    """
    counted = labels < TIE
    difference = (rewards[counted, 0] - rewards[counted, 1]).astype(np.float64)
    confidence = 1 / (1 + np.exp(-np.abs(difference)))
    right = rewards[counted].argmax(axis=1) == labels[counted]
    place = np.minimum(((confidence - 0.5) * 2 * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    rows, error = [], 0.0
    for index in range(CALIBRATION_BINS):
        chosen = place == index
        if chosen.any():
            sure, good = float(confidence[chosen].mean()), float(right[chosen].mean())
            rows.append({"confidence": sure, "accuracy": good, "pairs": int(chosen.sum())})
            error += abs(sure - good) * chosen.mean()
    return {"error": float(error) if rows else float("nan"), "bins": rows}


def reward_statistics(
    member_rewards: np.ndarray, data: RewardData, message_only: bool, running: bool, batch_size: int
) -> dict[str, Any]:
    """Mean, variance and quantiles of a model's reward over the training part, as JSON.

    The quantiles are of the normalised rewards of the distinct training messages, or of all training steps where the model
    reads more. `disagreement` is the mean standard deviation over the members' normalised rewards.

    Args:
      member_rewards: raw rewards of each member: float32 [members, M] of the distinct messages if
        `message_only`, else [members, pairs, 2, L].
      running: compat.running_statistics: merge mean and variance batch by batch of `batch_size` pairs.
    """
    counts = data.counts
    if message_only:
        seen = counts > 0
        values, weights = member_rewards[:, seen], counts[seen]
    else:
        values = member_rewards[:, data.train].reshape(len(member_rewards), -1)
        weights = np.ones(values.shape[1], np.int64)
    together = values.mean(axis=0)
    mean, variance = weighted_moments(together, weights)
    if running:
        moments = RunningMoments()
        everything = member_rewards.mean(axis=0)
        for start in range(0, data.train.size, batch_size):
            pairs = data.train[start : start + batch_size]
            moments.update(everything[data.ids[pairs]] if message_only else everything[pairs])
        mean, variance = moments.mean, moments.variance
    by_member = [weighted_moments(member, weights) for member in values]
    normalised = np.asarray(Normalisation(mean, variance).normalise(together))
    own = np.stack([Normalisation(*m).normalise(member) for m, member in zip(by_member, values, strict=True)])
    return {
        "mean": mean,
        "variance": variance,
        "quantile_levels": list(QUANTILE_LEVELS),
        "quantiles": quantiles(normalised).tolist(),
        "num_distinct": int(values.shape[1]),
        "num_steps": int(weights.sum()),
        "num_pairs": int(data.train.size),
        "member_mean": [m for m, _ in by_member],
        "member_variance": [v for _, v in by_member],
        "disagreement": float(own.std(axis=0).mean()),
        "advice": _advice(member_rewards.mean(axis=0), mean, variance, normalised, data)
        if message_only
        else None,
    }


def _advice(
    rewards: np.ndarray, mean: float, variance: float, of_training: np.ndarray, data: RewardData
) -> dict[str, Any]:
    """The advice on thresholds from all labels, and the texts that speak against it or against the training.

    `rewards` are float32 [M], raw, of all messages; `of_training` the normalised ones of the training messages.
    """
    labels, empty = data.targets.labels, np.logical_not(data.messages.any(axis=1))
    normalised = np.asarray(Normalisation(mean, variance).normalise(rewards))
    counted = outcomes.count_outcomes(data.ids, labels, len(data.messages))
    standing = outcomes.standing(data.ids, labels, empty)
    levels = quantiles(of_training)
    advice = threshold.advise(normalised, counted.steps, counted.tied, empty, levels, standing)
    unbeaten = threshold.without_a_win(normalised, advice["threshold"], standing, ~empty)
    wrong_texts, wrongly = outcomes.misjudged(data.ids, labels, normalised)

    def shown(index: int) -> dict[str, Any]:
        return {"text": outcomes.text_of(data.messages[index]), "reward": float(normalised[index])}

    def why(index: int) -> str:
        return "never compared with it" if standing[index] == outcomes.UNCOMPARED else "does not win"

    def record(index: int) -> dict[str, int]:
        wins, losses = int(counted.wins[index]), int(counted.losses[index])
        return {"wins": wins, "losses": losses, "wrong": int(wrongly[index])}

    return advice | {
        "texts": len(data.messages),
        "unbeaten_texts": len(unbeaten),
        "unbeaten": [shown(index) | {"why": why(index)} for index in unbeaten[: threshold.NAMED].tolist()],
        "misjudged_texts": len(wrong_texts),
        "misjudged": [shown(index) | record(index) for index in wrong_texts[: threshold.NAMED].tolist()],
    }


def evaluate_pairs(rewards: np.ndarray, data: RewardData, batch_size: int) -> dict[str, Any]:
    """Losses and accuracies of pairs, from the rewards float32 [pairs, 2] of all sub-sequences of the dataset.

    Returns:
      Numbers by name. `NAME_pairs` is the number of pairs that NAME is a mean of (accuracies and calibration: without
      ties); a mean of no pairs is NaN. Losses are of targets without label smoothing, so that runs with different
      smoothing can be compared. `csv_*` are the published means over batches of `batch_size`.
    """
    labels, weights, wanted = data.targets.labels, data.targets.weights, data.targets.unsmoothed
    found: dict[str, Any] = {}
    part, tuned = data.validation, data.train
    loss = cross_entropy(rewards[part], wanted[part])
    present = weights[part] > 0
    only_new, any_new = data.unseen()
    groups = {"validation": (part, present), "train_evaluated": (tuned, weights[tuned] > 0)}
    groups["validation_unseen"] = (part[only_new], present[only_new])
    groups["validation_partly_unseen"] = (part[any_new], present[any_new])
    for name, (pairs, counted) in groups.items():
        chosen = pairs[counted]
        own = weights[chosen].astype(np.float64)
        total = (cross_entropy(rewards[chosen], wanted[chosen]) * own).sum()
        found[f"{name}/loss"] = float(total / own.sum()) if chosen.size else float("nan")
        found[f"{name}/accuracy"], number = accuracy(rewards[chosen], labels[chosen])
        found[f"{name}/loss_pairs"], found[f"{name}/accuracy_pairs"] = int(chosen.size), number
    sure = calibration(rewards[part[present]], labels[part[present]])
    found["validation/calibration_error"], found["calibration"] = sure["error"], sure["bins"]
    found["validation/calibration_error_pairs"] = sum(row["pairs"] for row in sure["bins"])
    right = rewards[part].argmax(axis=1) == labels[part]
    found["csv_validation_loss"] = mean_over_batches(loss, present, batch_size)
    found["csv_validation_accuracy"] = mean_over_batches(right, (labels[part] < TIE) & present, batch_size)
    score = np.full(len(part), TIE, np.int8) if data.score is None else data.score[part]
    by_score, number = accuracy(rewards[part], score)
    found["validation/score_accuracy"], found["validation/score_accuracy_pairs"] = by_score, number
    right = rewards[part].argmax(axis=1) == score
    found["csv_score_accuracy"] = mean_over_batches(right, score < TIE, batch_size)
    return found
