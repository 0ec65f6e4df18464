"""Writes a table and a page of a trained reward's values for all distinct messages of a dataset."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.display.text_tables import csv_cell
from motif_jax.motif.pairs import threshold
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.reward import reward_ratings
from motif_jax.motif.reward.reward_function import as_rows, open_reward
from motif_jax.motif.reward.reward_ratings import facts
from motif_jax.play.messages import as_text
from motif_jax.reports import explain
from motif_jax.reports.explain_data import ExplainedReward, rank_correlation, seen
from motif_jax.rl.reward_keys import Scoring

# Messages of each end that the terminal shows.
_SHOWN = 10
PAGE, TABLE, TEXTS = "explain.html", "messages.csv", "texts.csv"


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    place = config.reward.dir
    checks.require(bool(place), "reward.dir", place, "a reward: give it with --config.reward.dir=DIR")
    for key in ("reward", "other"):
        place = config[key].dir
        there = not place or Path(place).exists()
        checks.require(there, f"{key}.dir", place, "a run folder or a .safetensors file")
    if config.dataset_dir:
        checks.existing_folder(config, "dataset_dir")
    models = _open_models(config)
    folder = _dataset_folder(config, models[0])
    for model in models:
        _payment(config, model)
        architecture = model.network.architecture
        if folder is not None:
            PairsDataset.open(folder, need=("message", *architecture.fields))
        allowed = f"a dataset: {model.folder} reads {', '.join(architecture.fields)}, not the message alone"
        known = folder is not None or architecture.message_only
        checks.require_key(config, "dataset_dir", known, allowed)
    _rows_of_texts(config, models)


def _open_models(config: ConfigDict) -> list[Any]:
    sections = [config.reward, *([config.other] if config.other.dir else [])]
    return [open_reward(section.dir, section.step) for section in sections]


def _dataset_folder(config: ConfigDict, reward: Any) -> str | None:
    """The dataset whose messages are rated; None: the messages of the reward's own online run."""
    if not config.dataset_dir and getattr(reward, "met", None):
        return None
    if config.dataset_dir:
        return config.dataset_dir
    named = reward.config.get("dataset_dir") or ""
    folder = run_folder.stored_folder(reward.folder, named)
    if folder is None:
        raise UserError(
            f"config.dataset_dir=None: the reward's own dataset ({named or 'none named'}) is neither beside {reward.folder}, nor where its "
            "training was started, nor here; name one"
        )
    return str(folder)


def _asked(config: ConfigDict) -> list[str]:
    return config.text.split("|") if config.text else []


def _rows_of_texts(config: ConfigDict, models: list[Any]) -> np.ndarray:
    """The texts of `config.text` as uint8 [N, 256]; UserError for one that cannot be rated."""
    asked = _asked(config)
    for model in models if asked else ():
        architecture = model.network.architecture
        allowed = f"empty: {model.folder} reads {', '.join(architecture.fields)}, not the message alone, so it has no reward for a text"
        checks.require_key(config, "text", architecture.message_only, allowed)
    try:
        return as_rows(asked)[0]
    except UserError as error:
        raise UserError(f"config.text: {error}") from None


def run(config: ConfigDict, workdir: Path) -> None:
    with run_folder.opened(workdir, config):
        models = _open_models(config)
        folder, met = _dataset_folder(config, models[0]), getattr(models[0], "met", {})
        data = reward_ratings.messages_met(met) if folder is None else reward_ratings.read_messages(folder)
        asked, rows = _asked(config), _rows_of_texts(config, models)
        rewards, typed = [], []
        for model, name in zip(models, _names(models), strict=True):
            rating = reward_ratings.rate_dataset(model, data, config.max_steps)
            most = config.max_evaluations, config.max_steps
            history, evaluations = reward_ratings.history(model, data, *most)
            rewards.append(_explained(config, model, name, rating, history, evaluations))
            if asked:
                rated = reward_ratings.rate(model, model.members_of_messages(model.params, rows))
                typed.append(_explained(config, model, name, rated, rated.normalised[None], [model.step]))
        texts = [as_text(message) for message in data.messages]
        counts = _counts(rows, data.messages, data.counts)
        source = str(folder or f"the training in {models[0].folder}")
        explanation = explain.Explanation(texts, data.counts, rewards, asked, typed, source, counts)
        atomic_write_text(workdir / TABLE, _table(explanation.messages, data.counts, rewards))
        if asked:
            atomic_write_text(workdir / TEXTS, _table(asked, explanation.text_counts, typed))
            _print_texts(explanation)
        else:
            for reward in rewards:
                print(_overview(explanation.messages, explanation.counts, reward))
            # Of an earlier call, maybe of another reward.
            (workdir / TEXTS).unlink(missing_ok=True)
        page = explain.render(explanation, time.strftime("%Y-%m-%d %H:%M"), config.max_rows)
        atomic_write_text(workdir / PAGE, page)
        atomic_write_json(workdir / "summary.json", _summary(explanation))
        for reward in rewards:
            if not reward.rated.all():
                print(
                    f"{reward.name}: {(~reward.rated).sum():,} of {len(data.messages):,} messages have no reward, since none of the "
                    f"{config.max_steps:,} steps read shows them: a larger --config.max_steps includes them"
                )
        print(threshold.describe(models[0].statistics, _scoring(config).quantile), end="")
        print(f"{len(data.messages):,} distinct messages; page: {(workdir / PAGE).resolve()}")


def _names(models: list[Any]) -> list[str]:
    names = [model.folder.stem if model.folder.suffix else model.folder.name for model in models]
    if len(set(names)) < len(names):
        names = [f"{name} ({letter})" for name, letter in zip(names, "AB", strict=True)]
    return names


def _scoring(config: ConfigDict) -> Scoring:
    return schema.read_section(Scoring, config.reward)


def _payment(config: ConfigDict, model: Any) -> Any:
    scoring = _scoring(config)
    return model.normalisation(True, scoring.level, fallback=scoring.quantile)


def _explained(config: ConfigDict, model: Any, name: str, rating: Any, history: Any, evaluations: Any) -> Any:
    payment = _payment(config, model)
    return ExplainedReward(
        name=name,
        raw=rating.raw,
        normalised=rating.normalised,
        paid=np.asarray(payment(rating.raw)) + 0.0,  # without the sign of what is below the threshold
        threshold=payment.threshold,
        disagreement=rating.disagreement,
        history=history,
        evaluations=evaluations,
        curve=model.curve,
        facts=facts(model),
    )


def _table(messages: Any, counts: Any, rewards: list[Any]) -> str:
    """CSV, greatest reward first: message, count, and the columns of each reward, empty where it has none."""
    columns: dict[str, Any] = {"message": list(map(csv_cell, messages)), "count": counts}
    for reward, letter in zip(rewards, "AB", strict=False):
        parts = {"raw": reward.raw, "normalised": reward.normalised, "paid": reward.paid}
        if reward.disagreement is not None:
            parts["disagreement"] = reward.disagreement
        for evaluation, values in zip(reward.evaluations, reward.history, strict=True):
            parts[f"normalised_at_{evaluation}"] = values
        prefix = f"{letter}_" if len(rewards) > 1 else ""
        columns |= {prefix + name: values for name, values in parts.items()}
    order = np.argsort(-rewards[0].normalised, kind="stable")
    table = pd.DataFrame(columns).iloc[order].to_csv(index=False, float_format="%.7g", lineterminator="\n")
    return str(table)


def _overview(messages: Sequence[str], counts: np.ndarray, reward: Any) -> str:
    """Lines for the terminal: the best and the worst messages, the threshold and the share of the steps that it pays."""
    order = np.argsort(-reward.normalised, kind="stable")[: reward.rated.sum()]
    parts = {f"best {_SHOWN} of {order.size:,}": order[:_SHOWN], f"worst {_SHOWN}": order[::-1][:_SHOWN]}
    if order.size <= 2 * _SHOWN:
        parts = {f"all {order.size}": order}
    lines = []
    for title, chosen in parts.items():
        lines.append(f"{reward.name}, {title} messages (normalised, paid, steps):")
        lines += [
            f"  {reward.normalised[i]:+7.3f} {reward.paid[i]:7.3f} {counts[i]:9,}  {messages[i]!r}"
            for i in chosen.tolist()
        ]
    share = counts[reward.pays].sum() / max(1, counts[reward.rated].sum())
    limit = "no threshold" if reward.threshold is None else f"threshold {reward.threshold:.3f}"
    paid = f"pays {reward.pays.sum():,} of {order.size:,} messages, on {100 * share:.3g} % of the steps"
    return "\n".join([*lines, f"{reward.name}: {limit}, {paid}"])


def _counts(rows: np.ndarray, messages: np.ndarray, counts: np.ndarray) -> np.ndarray:
    known = {message.tobytes(): int(count) for message, count in zip(messages, counts, strict=True)}
    return np.array([known.get(row.tobytes(), 0) for row in rows], int)


def _print_texts(explanation: Any) -> None:
    for index, text in enumerate(explanation.texts):
        parts = [
            f"{reward.name}: normalised {reward.normalised[index]:+.3f}, pays {reward.paid[index]:.3f}"
            for reward in explanation.typed
        ]
        print(f"{text!r}  {'; '.join(parts)}; {seen(explanation.text_counts[index])}")


def _summary(explanation: Any) -> dict[str, Any]:
    rewards = explanation.rewards
    found: dict[str, Any] = {"messages": len(explanation.messages), "steps": int(explanation.counts.sum())}
    for reward in rewards:
        best = np.argsort(-reward.normalised, kind="stable")[: reward.rated.sum()]
        found.setdefault("rewards", []).append(
            {
                "name": reward.name,
                "threshold": reward.threshold,
                "paying_messages": int(reward.pays.sum()),
                "unrated_messages": int((~reward.rated).sum()),
                "most_liked": [explanation.messages[i] for i in best[:10]],
                "least_liked": [explanation.messages[i] for i in best[::-1][:10]],
            }
        )
    if len(rewards) == 2:
        value = rank_correlation(rewards[0].normalised, rewards[1].normalised)
        found["rank_correlation"] = None if np.isnan(value) else value
    return found
