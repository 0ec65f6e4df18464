"""Writes a table and a page of a trained reward's values for all distinct messages of a dataset."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.display.text_tables import csv_cell
from motif_jax.motif import explanation_page
from motif_jax.motif.config import ExplainRewardConfig
from motif_jax.motif.explanation import (
    Composition,
    ExplainedReward,
    Explanation,
    find_compositions,
    occurrences_text,
    rank_correlation,
)
from motif_jax.motif.pairs import threshold
from motif_jax.motif.pairs.dataset import open_datasets
from motif_jax.motif.reward import reward_ratings
from motif_jax.motif.reward.reward_function import as_rows, open_reward
from motif_jax.motif.reward.reward_ratings import facts
from motif_jax.play.messages import as_text
from motif_jax.rl.reward_keys import RewardCheckpoint
from motif_jax.schema import read_section

# Best and worst messages that the terminal and the summary show.
_MESSAGES_AN_END = 10
# Paid messages with a sentence that the reward does not like, which the terminal shows; the page
# has all.
_SHOWN_COMPOSITIONS = 5
PAGE = "explain.html"
TABLE = "messages.csv"
TEXTS = "texts.csv"


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError where a reward, the dataset or a text of the config cannot be used."""
    run_folder.check_identity(workdir, config_tree)
    config = read_section(ExplainRewardConfig, config_tree)
    # What can be rated depends on what the rewards read, so that they are opened here.
    models = _open_models(config)
    folders = _dataset_folders(config, models[0])
    for model in models:
        # Raises where the reward has no statistics for the config's normalisation.
        _payment(config, model)
        architecture = model.network.architecture
        if folders:
            open_datasets(folders, need=("message", *architecture.fields))
        allowed = f"a dataset: {model.folder} reads {', '.join(architecture.fields)}, not the message alone"
        can_rate = bool(folders) or architecture.message_only
        checks.require_key(config, "dataset_dir", can_rate, allowed)
    _rows_of_texts(config, models)


def _open_models(config: ExplainRewardConfig) -> list[Any]:
    """The reward, and the other one to compare it with if the config names one."""
    sections: list[RewardCheckpoint] = [config.reward]
    if config.other.dir:
        sections.append(config.other)
    return [open_reward(section.dir or "", section.step) for section in sections]


def _dataset_folders(config: ExplainRewardConfig, reward: Any) -> list[Path]:
    """The datasets whose messages are rated; []: the messages of the reward's own online run."""
    if config.dataset_dir:
        return [Path(folder) for folder in checks.listed(config.dataset_dir)]
    # A reward that was learned online knows what its run met.
    if getattr(reward, "step_counts", None):
        return []
    training_dataset = reward.config.get("dataset_dir") or ""
    folders = run_folder.stored_folders(reward.folder, training_dataset)
    if not folders:
        raise UserError(
            f"config.dataset_dir=None: the reward's own dataset ({training_dataset or 'none named'}) is neither beside {reward.folder}, "
            "nor where its training was started, nor here; name one"
        )
    return folders


def _texts(config: ExplainRewardConfig) -> list[str]:
    """The texts of `config.text`, which are separated by |."""
    return config.text.split("|") if config.text else []


def _rows_of_texts(config: ExplainRewardConfig, models: list[Any]) -> np.ndarray:
    """The texts of `config.text` as uint8 [N, 256]; UserError for one that cannot be rated."""
    texts = _texts(config)
    if texts:
        for model in models:
            architecture = model.network.architecture
            allowed = f"empty: {model.folder} reads {', '.join(architecture.fields)}, not the message alone, so it has no reward for a text"
            checks.require_key(config, "text", architecture.message_only, allowed)
    return as_rows(texts)[0]


def run(config_tree: ConfigDict, workdir: Path) -> None:
    """Rates the messages and the texts of the config; writes the page, the tables and the
    summary.
    """
    config = read_section(ExplainRewardConfig, config_tree)
    with run_folder.opened(workdir, config_tree):
        models = _open_models(config)
        folders = _dataset_folders(config, models[0])
        # No dataset is named: a reward that was learned online has what its run met.
        if folders:
            data = reward_ratings.read_messages(folders)
        else:
            data = reward_ratings.messages_met(models[0].step_counts)
        explanation = _explanation(config, models, folders, data)

        atomic_write_text(
            workdir / TABLE, messages_table(explanation.messages, data.counts, explanation.rewards)
        )
        if explanation.texts:
            table = messages_table(explanation.texts, explanation.text_counts, explanation.typed)
            atomic_write_text(workdir / TEXTS, table)
            print_texts(explanation)
        else:
            for reward in explanation.rewards:
                print(_overview(explanation.messages, explanation.counts, reward))
            for reward, compositions in zip(
                explanation.rewards, explanation.compositions, strict=True
            ):
                if compositions:
                    print(_warning_of(reward.name, compositions))
            # Of an earlier call, maybe of another reward.
            (workdir / TEXTS).unlink(missing_ok=True)
        page = explanation_page.render(
            explanation, time.strftime("%Y-%m-%d %H:%M"), config.max_rows
        )
        atomic_write_text(workdir / PAGE, page)
        atomic_write_json(workdir / "summary.json", summary_of(explanation))

        for reward in explanation.rewards:
            if not reward.rated.all():
                print(
                    f"{reward.name}: {(~reward.rated).sum():,} of {len(data.messages):,} messages have no reward, since none of the "
                    f"{config.max_steps:,} steps read shows them: a larger --config.max_steps includes them"
                )
        print(threshold.describe(models[0].statistics, config.reward.quantile), end="")
        print(f"{len(data.messages):,} distinct messages; page: {(workdir / PAGE).resolve()}")


def _explanation(
    config: ExplainRewardConfig, models: list[Any], folders: list[Path], data: Any
) -> Explanation:
    """Rates the dataset's messages, and the texts of the config, with every reward."""
    texts = _texts(config)
    rows = _rows_of_texts(config, models)
    messages = [as_text(message) for message in data.messages]
    rewards = []
    typed = []
    compositions = []
    for model, name in zip(models, names_of(models), strict=True):
        rating = reward_ratings.rate_dataset(model, data, config.max_steps)
        history, evaluations = reward_ratings.history(model, data, config.max_steps)
        reward = _explained_reward(config, model, name, rating, history, evaluations)
        rewards.append(reward)
        compositions.append(_compositions(model, data, reward))
        if texts:
            # The texts have one evaluation, the chosen one, in place of a history.
            text_rating = reward_ratings.rate(model, model.members_of_messages(model.params, rows))
            text_history = text_rating.normalised[None]
            typed.append(
                _explained_reward(config, model, name, text_rating, text_history, [model.step])
            )

    source = ", ".join(map(str, folders)) or f"the training in {models[0].folder}"
    text_counts = counts_of_texts(rows, data.messages, data.counts)
    return Explanation(
        messages, data.counts, rewards, texts, typed, source, text_counts, compositions
    )


def _compositions(model: Any, data: Any, reward: ExplainedReward) -> list[Composition]:
    """The messages that are paid in spite of a sentence; [] where the reward reads more than the
    message.
    """
    if not model.network.architecture.message_only:
        return []
    return find_compositions(data.messages, data.counts, reward)


def names_of(models: list[Any]) -> list[str]:
    """Names of the rewards' folders or files, told apart by letters where they are equal."""
    names = [model.folder.stem if model.folder.suffix else model.folder.name for model in models]
    if len(set(names)) < len(names):
        names = [f"{name} ({letter})" for name, letter in zip(names, "AB", strict=True)]
    return names


def _payment(config: ExplainRewardConfig, model: Any) -> Any:
    """The function from raw rewards to those that an agent is paid, with its `threshold`."""
    return model.normalisation(True, config.reward.level)


def _explained_reward(
    config: ExplainRewardConfig, model: Any, name: str, rating: Any, history: Any, evaluations: Any
) -> ExplainedReward:
    payment = _payment(config, model)
    return ExplainedReward(
        name=name,
        raw=rating.raw,
        normalised=rating.normalised,
        # Adding 0 makes -0.0, which a reward below the threshold may be, a 0.0.
        paid=np.asarray(payment(rating.raw)) + 0.0,
        threshold=payment.threshold,
        disagreement=rating.disagreement,
        history=history,
        evaluations=evaluations,
        curve=model.curve,
        facts=facts(model),
    )


def messages_table(messages: Any, counts: Any, rewards: Sequence[Any]) -> str:
    """CSV, greatest reward first: message, count, and the columns of each reward, empty where it
    has none.
    """
    columns: dict[str, Any] = {"message": list(map(csv_cell, messages)), "count": counts}
    for reward, letter in zip(rewards, "AB", strict=False):
        prefix = f"{letter}_" if len(rewards) > 1 else ""
        columns[f"{prefix}raw"] = reward.raw
        columns[f"{prefix}normalised"] = reward.normalised
        columns[f"{prefix}paid"] = reward.paid
        if reward.disagreement is not None:
            columns[f"{prefix}disagreement"] = reward.disagreement
        for evaluation, values in zip(reward.evaluations, reward.history, strict=True):
            columns[f"{prefix}normalised_at_{evaluation}"] = values
    # By the first reward; NaN, of messages without one, comes last.
    order = np.argsort(-rewards[0].normalised, kind="stable")
    table = (
        pd.DataFrame(columns)
        .iloc[order]
        .to_csv(index=False, float_format="%.7g", lineterminator="\n")
    )
    return str(table)


def _overview(messages: Sequence[str], counts: np.ndarray, reward: Any) -> str:
    """Lines for the terminal: the best and the worst messages, the threshold and the share of the
    steps that it pays.
    """
    order = _best_first(reward)
    if order.size <= 2 * _MESSAGES_AN_END:
        groups = {f"all {order.size}": order}
    else:
        groups = {
            f"best {_MESSAGES_AN_END} of {order.size:,}": order[:_MESSAGES_AN_END],
            f"worst {_MESSAGES_AN_END}": order[::-1][:_MESSAGES_AN_END],
        }
    lines = []
    for title, group in groups.items():
        lines.append(f"{reward.name}, {title} messages (normalised, paid, steps):")
        for i in group.tolist():
            figures = f"{reward.normalised[i]:+7.3f} {reward.paid[i]:7.3f} {counts[i]:9,}"
            lines.append(f"  {figures}  {messages[i]!r}")

    share = reward.paid_share(counts)
    limit = "no threshold" if reward.threshold is None else f"threshold {reward.threshold:.3f}"
    paid = f"pays {reward.pays.sum():,} of {order.size:,} messages, on {100 * share:.3g} % of the steps"
    lines.append(f"{reward.name}: {limit}, {paid}")
    return "\n".join(lines)


def _warning_of(name: str, compositions: Sequence[Composition]) -> str:
    lines = [
        f"{name}: warning: pays {len(compositions):,} messages although a sentence of theirs is among what it likes least; an agent may seek it:"
    ]
    for composition in compositions[:_SHOWN_COMPOSITIONS]:
        lines.append(
            f"  pays {composition.paid:.3f} for {composition.message!r}; {composition.sentence!r} alone has {composition.sentence_reward:+.3f}"
        )
    return "\n".join(lines)


def _best_first(reward: Any) -> np.ndarray:
    """Indices of the messages that have a reward, greatest first. NaN, the reward of the others, is
    sorted to the end.
    """
    return np.argsort(-reward.normalised, kind="stable")[: reward.rated.sum()]


def counts_of_texts(rows: np.ndarray, messages: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many steps of the dataset show each text of `rows`, int64; 0 for a text that it does not
    have.
    """
    count_of = {
        message.tobytes(): int(count) for message, count in zip(messages, counts, strict=True)
    }
    return np.array([count_of.get(row.tobytes(), 0) for row in rows], int)


def print_texts(explanation: Any) -> None:
    for index, text in enumerate(explanation.texts):
        parts = [
            f"{reward.name}: normalised {reward.normalised[index]:+.3f}, pays {reward.paid[index]:.3f}"
            for reward in explanation.typed
        ]
        print(f"{text!r}  {'; '.join(parts)}; {occurrences_text(explanation.text_counts[index])}")


def summary_of(explanation: Any) -> dict[str, Any]:
    rewards = explanation.rewards
    compositions_of = explanation.compositions or [[]] * len(rewards)
    summary: dict[str, Any] = {
        "messages": len(explanation.messages),
        "steps": int(explanation.counts.sum()),
        "rewards": [],
    }
    for reward, compositions in zip(rewards, compositions_of, strict=True):
        order = _best_first(reward)
        summary["rewards"].append(
            {
                "name": reward.name,
                "threshold": reward.threshold,
                "paying_messages": int(reward.pays.sum()),
                "unrated_messages": int((~reward.rated).sum()),
                "most_liked": [explanation.messages[i] for i in order[:_MESSAGES_AN_END]],
                "least_liked": [explanation.messages[i] for i in order[::-1][:_MESSAGES_AN_END]],
                "paid_in_spite_of_a_sentence": [
                    composition._asdict() for composition in compositions
                ],
            }
        )
    if len(rewards) == 2:
        correlation = rank_correlation(rewards[0].normalised, rewards[1].normalised)
        # JSON has no NaN.
        summary["rank_correlation"] = None if np.isnan(correlation) else correlation
    return summary
