"""Writes the model card of a trained reward or agent from its run folder and those that it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets.pairs import PairsDataset
from motif_jax.reports import curves, hacking, journal, model_card
from motif_jax.reports.model_card import CardData
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.files import atomic_write_text

CARD = "MODEL_CARD.md"
KINDS = {"train_reward": "reward", "train_agent": "agent"}
LABELS = ("first", "second", "tie", "unknown")


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for folders that are not what they should be."""
    folder = checks.existing_folder(config, "model")
    stage = run_folder.read_config(folder).get("stage")
    checks.require(
        stage in KINDS, "model", str(folder), f"a run of {' or '.join(KINDS)}; it is one of {stage}"
    )
    for evaluation in _folders(config):
        checks.require(
            (evaluation / journal.SUMMARY).is_file(), "evaluations", str(evaluation), "a finished evaluation"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads everything and writes the card."""
    folder = Path(config.model)
    card = read_card(folder)
    card.licence, card.notes = config.licence, config.notes
    card.evaluations = {path.name: journal.read_evaluation(path) for path in _folders(config)}
    path = run_folder.prepare(workdir, config) / CARD
    atomic_write_text(path, model_card.render(card))
    print(f"model card: {path.resolve()}")


def _folders(config: ConfigDict) -> list[Path]:
    return [Path(part.strip()) for part in config.evaluations.split(",") if part.strip()]


def read_card(folder: Path) -> CardData:
    """Returns what a run folder and the folders named in its config say of the model."""
    settings = run_folder.read_config(folder)
    card = CardData(KINDS[settings["stage"]], str(folder), settings, _json(folder / "versions.json"))
    if card.kind == "reward":
        card.reward_summary = _json(folder / "summary.json").get("last", {})
        _read_data(card)
        return card
    metrics = curves.read_metrics(folder)
    card.trained_steps = (
        int(max((curve.x[-1] for curve in metrics.values() if len(curve)), default=0)) or None
    )
    episodes = curves.read_episodes(folder)
    card.verdict = hacking.judge_training(episodes).line if episodes else ""
    reward = (settings.get("reward") or {}).get("dir")
    if reward and (Path(reward) / "config.json").is_file():
        card.reward_card = read_card(Path(reward))
    return card


def _read_data(card: CardData) -> None:
    dataset, name = Path(card.config["dataset_dir"]), card.config["annotator"]
    if not dataset.is_dir():
        return
    card.dataset = _json(dataset / "dataset.json")
    manifests = sorted((dataset / "annotations" / str(name)).glob("shard-*.json"))
    card.annotation = _json(manifests[0]) if manifests else {}
    opened = PairsDataset.open(dataset)
    if name in opened.preference_names():
        counts = np.bincount(opened.preference(name), minlength=4)
        card.labels = dict(zip(LABELS, map(int, counts), strict=True))


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
