"""Metrics of a reward model after every epoch, in float64 on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.core.verdicts import TIE
from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.reward.normalisation import (
    QUANTILE_LEVELS,
    Normalisation,
    RunningMoments,
    quantiles,
    weighted_moments,
)
from motif_jax.motif.reward.reward_data import RewardData

CALIBRATION_BINS = 10


def held_out_cross_entropy(rewards: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """-sum_k q_k log softmax(rewards)_k, float64 [N], of rewards and targets [N, 2]."""
    rewards = rewards.astype(np.float64)
    log_sum = np.logaddexp(rewards[:, 0], rewards[:, 1])
    return -(targets * (rewards - log_sum[:, None])).sum(axis=1)


def accuracy(rewards: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """Share of the pairs without ties whose order by `rewards` [N, 2] is that of `labels` [N], and
    their number.
    """
    counted = labels < TIE
    is_correct = rewards.argmax(axis=1)[counted] == labels[counted]
    share = float(is_correct.mean()) if is_correct.size else float("nan")
    return share, int(is_correct.size)


def mean_over_batches(values: np.ndarray, counted: np.ndarray, size: int) -> float:
    """The published mean: the mean over batches of `size` of the mean over their counted
    entries.
    """
    means = []
    for start in range(0, len(values), size):
        batch = slice(start, start + size)
        batch_values = values[batch][counted[batch]]
        if batch_values.size:
            means.append(batch_values.mean())
    return float(np.mean(means)) if means else float("nan")


def calibration(rewards: np.ndarray, targets: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Expected calibration error of rewards [N, 2] for targets [N, 2], without the ties of labels
    int [N] (Guo et al. 2017).

    Returns:
      `error`, the mean of |accuracy - confidence| of equal bins of the confidence in [1/2, 1],
      weighted by pairs; and `bins`: rows of mean confidence, accuracy and number of pairs, without
      empty bins. `accuracy` is the mean target of the side with the greater reward: for hard labels
      the share of pairs that are ordered as labelled, for soft ones the judges' probability.
    """
    counted = labels < TIE
    difference = (rewards[counted, 0] - rewards[counted, 1]).astype(np.float64)
    # The probability of the preferred side by Bradley and Terry's model.
    confidence = 1 / (1 + np.exp(-np.abs(difference)))
    # What the labels give the side that the reward prefers: of a judge that is 60 % sure of each
    # pair, a reward that is 60 % sure has learned all there is.
    preferred = rewards[counted].argmax(axis=1)
    labelled = np.take_along_axis(targets[counted], preferred[:, None], axis=1)[:, 0]
    # A confidence of exactly 1 belongs to the last bin.
    bins = np.minimum(((confidence - 0.5) * 2 * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    rows = []
    error = 0.0
    for index in range(CALIBRATION_BINS):
        members = bins == index
        if members.any():
            mean_confidence = float(confidence[members].mean())
            bin_accuracy = float(labelled[members].mean())
            rows.append(
                {
                    "confidence": mean_confidence,
                    "accuracy": bin_accuracy,
                    "pairs": int(members.sum()),
                }
            )
            error += abs(mean_confidence - bin_accuracy) * members.mean()
    return {"error": float(error) if rows else float("nan"), "bins": rows}


def reward_statistics(
    member_rewards: np.ndarray, data: RewardData, message_only: bool, running: bool, batch_size: int
) -> dict[str, Any]:
    """Mean, variance and quantiles of a model's reward over the training part, as JSON.

    The quantiles are of the normalised rewards of the distinct training messages, or of all
    training steps where the model reads more. `disagreement` is the mean standard deviation over
    the members' normalised rewards.

    Args:
      member_rewards: raw rewards of each member: float32 [members, M] of the distinct messages if
        `message_only`, else [members, pairs, 2, L].
      running: compat.running_statistics: merge mean and variance batch by batch of `batch_size`
        pairs.
    """
    # Rewards [members, N] over the training part, and how often each occurs there.
    counts = data.counts
    if message_only:
        in_training = counts > 0
        values = member_rewards[:, in_training]
        weights = counts[in_training]
    else:
        values = member_rewards[:, data.train].reshape(len(member_rewards), -1)
        weights = np.ones(values.shape[1], np.int64)

    ensemble_values = values.mean(axis=0)
    mean, variance = weighted_moments(ensemble_values, weights)
    if running:
        # As published: every occurrence, in batches in the order of the split.
        moments = RunningMoments()
        all_rewards = member_rewards.mean(axis=0)
        for start in range(0, data.train.size, batch_size):
            pairs = data.train[start : start + batch_size]
            moments.update(all_rewards[data.ids[pairs]] if message_only else all_rewards[pairs])
        mean = moments.mean
        variance = moments.variance
    normalised = np.asarray(Normalisation(mean, variance).normalise(ensemble_values))

    # Each member by its own moments: their scales differ, and that is not a disagreement.
    member_moments = [weighted_moments(member, weights) for member in values]
    normalised_members = np.stack(
        [
            Normalisation(member_mean, member_variance).normalise(member)
            for (member_mean, member_variance), member in zip(member_moments, values, strict=True)
        ]
    )
    advice = None
    if message_only:
        advice = _advice(member_rewards.mean(axis=0), mean, variance, normalised, data)
    return {
        "mean": mean,
        "variance": variance,
        "quantile_levels": list(QUANTILE_LEVELS),
        "quantiles": quantiles(normalised).tolist(),
        "num_distinct": int(values.shape[1]),
        "num_steps": int(weights.sum()),
        "num_pairs": int(data.train.size),
        "member_mean": [member_mean for member_mean, _ in member_moments],
        "member_variance": [member_variance for _, member_variance in member_moments],
        "disagreement": float(normalised_members.std(axis=0).mean()),
        "advice": advice,
    }


def _advice(
    rewards: np.ndarray,
    mean: float,
    variance: float,
    training_rewards: np.ndarray,
    data: RewardData,
) -> dict[str, Any]:
    """The advice on thresholds from all labels, and the texts that speak against it or against the
    training.

    `rewards` are float32 [M], raw, of all messages; `training_rewards` the normalised ones of the
    training messages.
    """
    labels = data.targets.labels
    # bool [M]: the message of zeros alone, if the dataset has it.
    empty = np.logical_not(data.messages.any(axis=1))
    normalised = np.asarray(Normalisation(mean, variance).normalise(rewards))
    counts = outcomes.count_outcomes(data.ids, labels, len(data.messages))
    standing = outcomes.standing(data.ids, labels, empty)
    levels = quantiles(training_rewards)
    advice = threshold.advise(normalised, counts.steps, counts.tied, empty, levels, standing)

    def text_and_reward(index: int) -> dict[str, Any]:
        return {"text": outcomes.text_of(data.messages[index]), "reward": float(normalised[index])}

    paid_without_win = threshold.without_a_win(normalised, advice["threshold"], standing, ~empty)
    named_without_win = []
    for index in paid_without_win[: threshold.NAMED].tolist():
        was_compared = standing[index] != outcomes.UNCOMPARED
        never = "never compared with it" if empty.any() else "never compared"
        why = "does not win" if was_compared else never
        named_without_win.append({**text_and_reward(index), "why": why})

    misjudged, num_wrong = outcomes.misjudged(data.ids, labels, normalised)
    misjudged_rows = []
    for index in misjudged[: threshold.NAMED].tolist():
        misjudged_rows.append(
            {
                **text_and_reward(index),
                "wins": int(counts.wins[index]),
                "losses": int(counts.losses[index]),
                "wrong": int(num_wrong[index]),
            }
        )

    few_texts = []
    if len(data.messages) <= threshold.FEW:
        for index in np.argsort(-normalised, kind="stable").tolist():
            few_texts.append(
                {
                    **text_and_reward(index),
                    "steps_share": int(counts.steps[index]) / max(1, int(counts.steps.sum())),
                    "wins": int(counts.wins[index]),
                    "losses": int(counts.losses[index]),
                    "ties": int(counts.ties[index]),
                }
            )

    return {
        **advice,
        "few_texts": few_texts,
        "texts": len(data.messages),
        "paid_without_win_texts": len(paid_without_win),
        "paid_without_win": named_without_win,
        "misjudged_texts": len(misjudged),
        "misjudged": misjudged_rows,
    }


def evaluate_pairs(rewards: np.ndarray, data: RewardData, batch_size: int) -> dict[str, Any]:
    """Losses and accuracies of pairs, from the rewards float32 [pairs, 2] of all sub-sequences of
    the dataset.

    Returns:
      Numbers by name. `NAME_pairs` is the number of pairs that NAME is a mean of (accuracies and
      calibration: without ties); a mean of no pairs is NaN. Losses are of targets without label
      smoothing, so that runs with different smoothing can be compared. `csv_*` are the published
      means over batches of `batch_size`.
    """
    labels = data.targets.labels
    weights = data.targets.weights
    validation = data.validation
    # Without ties that `labels.ties=drop` leaves out.
    present = weights[validation] > 0
    only_new, any_new = data.unseen()
    # `train_evaluated` is of the parameters of now; the row's `train/...` are means over the
    # epoch's steps.
    groups = {
        "validation": validation[present],
        "train_evaluated": data.train[weights[data.train] > 0],
        "validation_unseen": validation[only_new & present],
        "validation_partly_unseen": validation[any_new & present],
    }
    metrics: dict[str, Any] = {}
    for name, pairs in groups.items():
        losses = held_out_cross_entropy(rewards[pairs], data.targets.unsmoothed[pairs])
        pair_weights = weights[pairs].astype(np.float64)
        mean_loss = (
            float((losses * pair_weights).sum() / pair_weights.sum())
            if pairs.size
            else float("nan")
        )
        share, number = accuracy(rewards[pairs], labels[pairs])
        metrics[f"{name}/loss"] = mean_loss
        metrics[f"{name}/accuracy"] = share
        metrics[f"{name}/loss_pairs"] = int(pairs.size)
        metrics[f"{name}/accuracy_pairs"] = number

    validated = groups["validation"]
    curve = calibration(rewards[validated], data.targets.unsmoothed[validated], labels[validated])
    metrics["validation/calibration_error"] = curve["error"]
    metrics["validation/calibration_error_pairs"] = sum(row["pairs"] for row in curve["bins"])
    metrics["calibration"] = curve["bins"]

    # Without info/score all pairs are ties, so that the means are of no pairs.
    score = np.full(len(validation), TIE, np.int8) if data.score is None else data.score[validation]
    score_accuracy, score_pairs = accuracy(rewards[validation], score)
    metrics["validation/score_accuracy"] = score_accuracy
    metrics["validation/score_accuracy_pairs"] = score_pairs

    # The published means, over batches in the order of the split.
    losses = held_out_cross_entropy(rewards[validation], data.targets.unsmoothed[validation])
    preferred = rewards[validation].argmax(axis=1)
    counted = (labels[validation] < TIE) & present
    metrics["csv_validation_loss"] = mean_over_batches(losses, present, batch_size)
    metrics["csv_validation_accuracy"] = mean_over_batches(
        preferred == labels[validation], counted, batch_size
    )
    metrics["csv_score_accuracy"] = mean_over_batches(preferred == score, score < TIE, batch_size)
    return metrics
