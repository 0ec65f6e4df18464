"""The values of a run's reward: of messages of its dataset, over its training, and of texts that it
learned online.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import run_folder
from motif_jax.core.distinct import distinct_rows
from motif_jax.core.metric_files import Curve
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import messages
from motif_jax.reports import learned_reward
from motif_jax.reports.learned_reward import LabelLogReport, LearnedText
from motif_jax.reports.run_data import LikedMessage
from motif_jax.rl.reward_keys import ThresholdedReward

# Evaluations or checkpoints of a reward that the page shows.
MAX_EVALUATIONS = 12
# Messages in the page's list, the most frequent of the dataset: with more a browser becomes slow.
_MAX_MESSAGES = 5000
# Messages of each end whose reward is shown over its training.
_EXTREMES = 3


def read_learned(folder: Path) -> LabelLogReport | None:
    """The labels that an online reward learned, valued at the run's checkpoints; None for any other
    reward.
    """
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps
    from motif_jax.oni import online_model

    config = run_folder.read_config(folder)
    kind = config.get("reward", {}).get("kind")
    report = learned_reward.read(folder, kind) if kind in online_model.KINDS else None
    if report is None:
        return None
    steps = saved_steps(folder)
    if not steps:
        return report

    rewards = [reward_function.load(folder, step) for step in steps[-MAX_EVALUATIONS:]]
    newest: Any = rewards[-1]
    # The log has no texts that were paid without a label of their own.
    labelled = {text.text for text in report.texts}
    for text, earned in newest.trained.earned.items():
        if earned and text not in labelled:
            report.texts.append(LearnedText(text, None, None, ""))
    if not report.texts:
        return report

    names = [text.text for text in report.texts]
    # [texts, checkpoints].
    values = np.stack([reward.intrinsic(names) for reward in rewards], axis=1)
    report.checkpoints = tuple(reward.trained.step for reward in rewards)
    decided: list[bool | None] = [None] * len(names)
    if kind == "classification" and newest.trained.taken:
        threshold = config["reward"]["classifier"]["threshold"]
        decided = [bool(is_yes) for is_yes in newest.raw(names) > threshold]
    report.texts = [
        text._replace(
            values=tuple(values_of_text),
            earned=newest.trained.earned.get(text.text, 0.0),
            decided=is_yes,
        )
        for text, values_of_text, is_yes in zip(report.texts, values.tolist(), decided, strict=True)
    ]
    return report


def liked_messages(
    section: ThresholdedReward, dataset: PairsDataset
) -> tuple[list[LikedMessage], dict[str, Curve]]:
    """The rewards of the most frequent messages, and those of the extreme ones over the reward's
    training.
    """
    from motif_jax.motif.reward import reward_function

    dataset_messages = dataset.data["message"]
    texts, ids = distinct_rows(dataset_messages.reshape(-1, dataset_messages.shape[-1]))
    counts = np.bincount(ids.reshape(-1), minlength=len(texts))
    frequent = np.argsort(-counts, kind="stable")[:_MAX_MESSAGES]
    texts = texts[frequent]
    folder = section.dir or ""
    reward = reward_function.load(folder, section.step)
    normalised = reward(texts)
    paid = reward.intrinsic(texts, section.level)
    liked = [
        LikedMessage(messages.as_text(text), int(count), float(value), float(paid_value))
        for text, count, value, paid_value in zip(
            texts, counts[frequent], normalised, paid, strict=True
        )
    ]
    return liked, _message_curves(folder, section.step, texts, normalised)


def _message_curves(
    folder: str, last: int | None, texts: np.ndarray, normalised: np.ndarray
) -> dict[str, Curve]:
    """Message -> its reward over the evaluations of the training, of the messages with the highest
    and the lowest.

    Args:
      last: the last evaluation that counts; None: all count.
    """
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps

    steps = [step for step in saved_steps(folder) if last is None or step <= last]
    if len(steps) > MAX_EVALUATIONS:
        spread = np.linspace(0, len(steps) - 1, MAX_EVALUATIONS).round().astype(int)
        steps = [steps[index] for index in dict.fromkeys(spread.tolist())]
    order = np.argsort(-normalised, kind="stable").tolist()
    extremes = list(dict.fromkeys([*order[:_EXTREMES], *order[-_EXTREMES:]]))
    values = [reward_function.load(folder, step)(texts[extremes]) for step in steps]
    by_step = np.array(values, np.float64)  # [evaluations, messages]
    curves = {}
    for column, row in enumerate(extremes):
        name = messages.as_text(texts[row]) or "(no message)"
        curves[name] = Curve(np.array(steps, np.float64), by_step[:, column])
    return curves
