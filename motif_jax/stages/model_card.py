"""Writes the model card of a trained reward or agent from its run folder and those that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.labels import counts
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.datasets.verdicts import SINGLE
from motif_jax.reports import evaluation_files, hacking, learned_reward, model_card
from motif_jax.reports.model_card import CardData, Labels
from motif_jax.reports.run_data import read_reward_summary
from motif_jax.support import config as checks
from motif_jax.support import curves, run_folder
from motif_jax.support.files import atomic_write_text, read_json

CARD = "MODEL_CARD.md"
KINDS = {"train_reward": "reward", "train_agent": "agent"}


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for folders that are not what they should be."""
    run_folder.check_identity(workdir, config)
    folder = checks.existing_folder(config, "model")
    stage = run_folder.read_config(folder).get("stage")
    checks.require(
        stage in KINDS, "model", str(folder), f"a run of {' or '.join(KINDS)}; it is one of {stage}"
    )
    for evaluation in _folders(config):
        checks.require(
            (evaluation / evaluation_files.SUMMARY).is_file(),
            "evaluations",
            str(evaluation),
            "a finished evaluation",
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads everything and writes the card."""
    folder = Path(config.model)
    card = read_card(folder)
    card.licence, card.notes = config.licence, config.notes
    folders = _folders(config)
    for path in folders:
        alone = [other.name for other in folders].count(path.name) == 1
        card.evaluations[path.name if alone else str(path)] = evaluation_files.read_evaluation(path)
    _write(config, workdir, card)


@run_folder.alone
def _write(config: ConfigDict, workdir: Path, card: CardData) -> None:
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
        card.reward_summary = read_reward_summary(folder)
        _read_data(card)
        return card
    metrics = curves.read_metrics(folder)
    card.trained_steps = (
        int(max((curve.x[-1] for curve in metrics.values() if len(curve)), default=0)) or None
    )
    episodes = curves.read_episodes(folder)
    card.verdict = hacking.judge_training(episodes).line if episodes else ""
    reward = settings.get("reward") or {}
    if reward.get("kind", "motif") != "motif":
        card.learned_labels = _labels_of_log(folder, reward["kind"])
    elif reward.get("dir") and reward.get("intrinsic_coefficient"):
        card.reward_folder = reward["dir"]
        place = Path(card.reward_folder)
        if (place / "config.json").is_file():
            card.reward_card = _of_folder(place)
        elif place.is_file():
            card.reward_card = _of_file(place)
    return card


def _labels_of_log(folder: Path, kind: str) -> dict[str, int]:
    """How many labels of each verdict the log of an agent's run has, {} where there is none."""
    found = learned_reward.read(folder, kind)
    return {} if found is None else {name: int(curve.y[-1]) for name, curve in found.counts.items()}


def _of_folder(folder: Path) -> CardData:
    """What a run folder says of the reward that was trained there, or learned while an agent played."""
    from motif_jax.rewards.learned import is_learned

    settings = run_folder.read_config(folder)
    if not is_learned(settings):
        return read_card(folder)
    labels = _labels_of_log(folder, settings["reward"]["kind"])
    return CardData("reward", str(folder), settings, learned_online=True, learned_labels=labels)


def _of_file(path: Path) -> CardData:
    """What a .safetensors file says of the reward in it."""
    from motif_jax.rewards.learned import LearnedReward
    from motif_jax.rewards.load import open_reward

    trained = open_reward(path)
    card = CardData("reward", str(path), trained.config)
    if isinstance(trained, LearnedReward):
        card.learned_online, card.learned_labels = True, _labels_of_texts(trained.labels)
    else:
        _read_data(card)
    return card


def _labels_of_texts(labels: Mapping[str, tuple[int, float | None]]) -> dict[str, int]:
    """How many of the texts have each verdict, {} without texts: those of pairs are in no file."""
    said = [label for label, _ in labels.values()]
    return {name: said.count(place) for place, name in enumerate(SINGLE.verdicts)} if said else {}


def _read_data(card: CardData) -> None:
    folder = Path(card.config.get("dataset_dir") or "")
    names = [name.strip() for name in (card.config.get("annotator") or "").split(",") if name.strip()]
    if not names or not folder.is_dir():
        return
    dataset = PairsDataset.open(folder)
    card.dataset = dataset.meta
    labels: dict[str, Labels] = {}
    while names:
        name = names.pop(0)
        if name not in labels:
            labels[name] = _read_labels(dataset, name)
            names += labels[name].merged_from
    card.labels = labels


def _read_labels(dataset: PairsDataset, name: str) -> Labels:
    made = dataset.folder / "annotations" / name
    manifests = sorted(made.glob("shard-*.json"))
    labels = Labels(_json(manifests[0]) if manifests else {})
    if name in dataset.preference_names():
        labels.counts = counts(dataset.preference(name))
    labels.merged_from = tuple(_json(made / "ensemble.json").get("sources", {}).get("labels", {}))
    return labels


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "put back a copy of it, or take it away and do without") if path.is_file() else {}
