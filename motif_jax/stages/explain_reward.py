"""Writes a table and a page of what a trained reward says about every distinct message of a dataset."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, atomic_write_text

PAGE, TABLE, TEXTS = "explain.html", "messages.csv", "texts.csv"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for rewards, evaluations or datasets that are not there, or bad values."""
    run_folder.check_identity(workdir, config)
    place = config.reward.dir
    checks.require(bool(place), "reward.dir", place, "a reward: give it with --config.reward.dir=DIR")
    for key in ("reward", "other"):
        place = config[key].dir
        there = not place or Path(place).exists()
        checks.require(there, f"{key}.dir", place, "a run folder or a .safetensors file")
        checks.positive(config, f"{key}.step", allow_zero=True, allow_none=True)
    checks.fraction(config, "reward.quantile", allow_none=True)
    for key in ("max_evaluations", "max_rows", "max_steps"):
        checks.positive(config, key)
    if config.dataset_dir:
        checks.existing_folder(config, "dataset_dir")


def _dataset_folder(config: ConfigDict, reward: Any) -> str:
    folder = config.dataset_dir or reward.config.get("dataset_dir")
    if not folder or not Path(folder).is_dir():
        raise UserError(
            f"config.dataset_dir={config.dataset_dir}: the reward's own dataset ({folder}) is not there; name one"
        )
    return folder


def run(config: ConfigDict, workdir: Path) -> None:
    """Rates the messages, prints the texts that were asked for, and writes the files."""
    from motif_jax.reports import explain
    from motif_jax.reports.messages import as_text
    from motif_jax.rewards.load import as_rows
    from motif_jax.runtime import reward_ratings

    run_folder.prepare(workdir, config)
    models = [reward_ratings.open_reward(config.reward.dir, config.reward.step)]
    if config.other.dir:
        models.append(reward_ratings.open_reward(config.other.dir, config.other.step))
    folder = _dataset_folder(config, models[0])
    data = reward_ratings.read_messages(folder)
    asked = [text for text in config.text.split("|") if config.text]
    rows, _ = as_rows(asked) if asked else (np.zeros((0, 256), np.uint8), ())
    names = _names(models)
    rewards, typed = [], []
    for model, name in zip(models, names, strict=True):
        rating = reward_ratings.rate_dataset(model, data, config.max_steps)
        history, evaluations = reward_ratings.history(model, data, config.max_evaluations, config.max_steps)
        rewards.append(_explained(config, model, name, rating, history, evaluations))
        if asked:
            rated = reward_ratings.rate(model, model.members_of_messages(model.params, rows))
            typed.append(_explained(config, model, name, rated, rated.normalised[None], [model.step]))
    explanation = explain.Explanation(
        [as_text(message) for message in data.messages], data.counts, rewards, asked, typed, str(folder)
    )
    atomic_write_text(workdir / TABLE, _table(explanation.messages, data.counts, rewards))
    if asked:
        atomic_write_text(workdir / TEXTS, _table(asked, np.zeros(len(asked), int), typed))
        _print_texts(asked, typed)
    page = explain.render(explanation, time.strftime("%Y-%m-%d %H:%M"), config.max_rows)
    atomic_write_text(workdir / PAGE, page)
    atomic_write_json(workdir / "summary.json", _summary(explanation))
    print(f"{len(data.messages):,} distinct messages; page: {(workdir / PAGE).resolve()}")


def _names(models: list[Any]) -> list[str]:
    names = [model.folder.stem if model.folder.suffix else model.folder.name for model in models]
    if len(set(names)) < len(names):
        names = [f"{name} ({letter})" for name, letter in zip(names, "AB", strict=True)]
    return names


def _explained(config: ConfigDict, model: Any, name: str, rating: Any, history: Any, evaluations: Any) -> Any:
    from motif_jax.reports.explain import ExplainedReward
    from motif_jax.runtime.reward_ratings import facts

    known = np.isfinite(rating.normalised)
    return ExplainedReward(
        name=name,
        raw=np.where(known, rating.raw, 0),
        normalised=np.where(known, rating.normalised, 0),
        threshold=model.normalisation(True, config.reward.quantile).threshold,
        quantile=config.reward.quantile,
        disagreement=None if rating.disagreement is None else np.nan_to_num(rating.disagreement),
        history=np.nan_to_num(history),
        evaluations=evaluations,
        curve=model.curve,
        facts=facts(model),
    )


def _table(messages: Any, counts: np.ndarray, rewards: list[Any]) -> str:
    """CSV, best liked first: message, count, and for each reward its columns, of two with A_ and B_."""
    header, columns = ["message", "count"], []
    for reward, letter in zip(rewards, "AB", strict=False):
        prefix = f"{letter}_" if len(rewards) > 1 else ""
        parts = {"raw": reward.raw, "normalised": reward.normalised, "paid": reward.paid}
        if reward.disagreement is not None:
            parts["disagreement"] = reward.disagreement
        for evaluation, values in zip(reward.evaluations, reward.history, strict=True):
            parts[f"normalised_at_{evaluation}"] = values
        header += [prefix + name for name in parts]
        columns += list(parts.values())
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for index in np.argsort(-rewards[0].normalised, kind="stable"):
        writer.writerow(
            [messages[index], int(counts[index]), *(f"{column[index]:.7g}" for column in columns)]
        )
    return file.getvalue()


def _print_texts(texts: list[str], typed: list[Any]) -> None:
    for index, text in enumerate(texts):
        parts = [
            f"{reward.name}: normalised {reward.normalised[index]:+.3f}, pays {reward.paid[index]:.3f}"
            for reward in typed
        ]
        print(f"{text!r}  {'; '.join(parts)}")


def _summary(explanation: Any) -> dict[str, Any]:
    from motif_jax.reports.explain import rank_correlation

    rewards = explanation.rewards
    found: dict[str, Any] = {"messages": len(explanation.messages), "steps": int(explanation.counts.sum())}
    for reward in rewards:
        best = np.argsort(-reward.normalised, kind="stable")
        found.setdefault("rewards", []).append(
            {
                "name": reward.name,
                "threshold": reward.threshold,
                "paying_messages": int((reward.paid != 0).sum()),
                "most_liked": [explanation.messages[i] for i in best[:10]],
                "least_liked": [explanation.messages[i] for i in best[::-1][:10]],
            }
        )
    if len(rewards) == 2:
        value = rank_correlation(rewards[0].normalised, rewards[1].normalised)
        found["rank_correlation"] = None if np.isnan(value) else value
    return found
