"""Model cards of exported rewards: what a reward is, what it was made from, what it reaches, and where it fails.

The parts follow Mitchell et al. 2019, "Model cards for model reporting".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.datasets.verdicts import SINGLE
from motif_jax.labels.labels import counts
from motif_jax.reports import text_tables
from motif_jax.reports.text_tables import markdown_escape as escape
from motif_jax.support.config import flat
from motif_jax.support.errors import printable
from motif_jax.support.files import read_json

if TYPE_CHECKING:
    from motif_jax.rewards.trained import TrainedReward

_LICENCE = (
    "The weights are a product of the data and the annotator above: their licences apply besides the Apache-2.0 licence "
    "of the code (the published Motif dataset and annotations are CC-BY-NC 4.0: no commercial use; language models have "
    "licences of their own). NetHack itself is under the NetHack General Public License."
)

# Texts with more characters stand in a block of their own.
_LONG = 120


@dataclass
class Labels:
    """One of the label files that a reward was trained on.

    Attributes:
      manifest: what it was made with, {} when unknown.
      counts: of the labels by name, {} when the file is not there.
      merged_from: names of the labels that it combines, () for those of one annotator.
    """

    manifest: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    merged_from: tuple[str, ...] = ()


@dataclass
class CardData:
    """Everything a card is made from; what is unknown is said to be so.

    Attributes:
      folder: of the run.
      config: of the run.
      versions: content of versions.json.
      dataset: content of dataset.json, {} for a dataset that was not written here or is not there.
      labels: by name, those that the reward was trained on and those that they combine.
      evaluation: numbers of the one that was exported.
      licence: of the weights, as their owner says; '' when not given.
      notes: further sentences of the owner.
      learned_online: whether it was learned while an agent played.
      learned_labels: of such a reward: how many labels of each verdict, by name.
    """

    folder: str
    config: Mapping[str, Any]
    versions: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    notes: str = ""
    learned_online: bool = False
    learned_labels: Mapping[str, int] = field(default_factory=dict)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fence(text: str, least: int) -> str:
    """Enough backticks to fence code with `text` in it."""
    return "`" * max([least, *(1 + len(run) for run in re.findall("`+", text))])


def _code(text: object) -> str:
    """Code in a line, whatever backticks it holds."""
    shown = printable(" ".join(str(text).split("\n")))
    fence = _fence(shown, 1)
    pad = " " if len(fence) > 1 else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _block(text: str) -> list[str]:
    fence = _fence(text, 3)
    return [fence, *text.rstrip("\n").split("\n"), fence]


def _listing(facts: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One line a fact, nested names with dots between; long texts such as prompts follow below the others."""
    lines, texts = [], []
    for name, value in flat(facts, prefix).items():
        text = _shown(value)
        if len(text) > _LONG or "\n" in text:
            texts += ["", f"{escape(name)}:", "", *_block(text)]
        elif text:
            lines.append(f"- {escape(name)}: {_code(text)}")
    return [*lines, *texts]


def _data(card: CardData) -> list[str]:
    lines = ["## Data", ""]
    if not card.dataset:
        lines += [
            f"- dataset: {_code(card.config.get('dataset_dir', 'unknown'))}, without a description (`dataset.json`)"
        ]
    facts = {
        **card.dataset,
        "arrays": ", ".join(card.dataset.get("arrays", ())),
    }  # without their types and sizes
    lines += _listing({name: value for name, value in facts.items() if name != "digests"})
    return [*lines, ""]


def _annotators(card: CardData) -> list[str]:
    lines = ["## Annotators and prompts", ""]
    if not card.labels:
        lines += [
            f"- labels: {_code(card.config.get('annotator') or 'unknown')}; nothing more is known of them",
            "",
        ]
    for name, labels in card.labels.items():
        lines += [f"### Labels {_code(name)}", "", *_labels(labels), ""]
    return lines


def _labels(labels: Labels) -> list[str]:
    lines = []
    if labels.counts:
        total = sum(labels.counts.values())
        shares = ", ".join(
            f"{escape(name)} {count:,} ({100 * count / total:.1f} %)" for name, count in labels.counts.items()
        )
        lines += [f"- {total:,} pairs: {shares}"]
    if labels.merged_from:
        names = ", ".join(map(_code, labels.merged_from))
        return [*lines, f"- combined from {names}, which follow"]
    if not labels.manifest:
        return [*lines, "- their manifest is not there: who made them is unknown"]
    who = labels.manifest.get("annotator", {})
    if who.get("annotator") == "lexicon":
        lines += [
            "- `lexicon` is a hand-written list of weighted patterns that stands in for a language model: the labels are "
            "those of its authors, not of a model"
        ]
    questions = labels.manifest.get("questions", {})
    return [*lines, *_listing({**who, "questions": questions})]


def _reward_metrics(card: CardData) -> list[str]:
    names = {
        "validation/accuracy": ("validation accuracy, ties left out", "validation/accuracy_pairs"),
        "validation_unseen/accuracy": (
            "the same, both messages never trained on",
            "validation_unseen/accuracy_pairs",
        ),
        "validation/loss": ("validation loss (nats per pair)", "validation/loss_pairs"),
        "validation/calibration_error": ("expected calibration error", "validation/accuracy_pairs"),
    }
    rows = [
        (title, f"{card.evaluation[key]:.4f}", f"{card.evaluation.get(pairs, 0):,.0f}")
        for key, (title, pairs) in names.items()
        if key in card.evaluation and card.evaluation.get(pairs, 0)
    ]
    if not rows:
        return ["No evaluation of the reward was found.", ""]
    return [text_tables.markdown(("number", "value", "n (pairs)"), rows)]


_LIMITS = """## Limits

- It knows the messages of its dataset and what resembles them; on others its number is a guess. Compare the two accuracies above.
- It has the preferences and blind spots of its annotator, and pays for messages, not for what they stand for: under hallucination messages name things that are not there.
- Rewards are normalised over the training messages; on another dataset their scale means something else.
"""


def _learned_from(card: CardData) -> str:
    tape = card.config["reward"].get("tape")
    source = f"of the run {_code(tape)}, played again" if tape else "of the annotator that follows"
    return f"learned while the agent played from labels {source}"


def _learned_labels(card: CardData) -> list[str]:
    """The labels of a reward that was learned while an agent played, and who gave them."""
    counts = ", ".join(f"{escape(name)} {count:,}" for name, count in card.learned_labels.items())
    lines = [f"- {sum(card.learned_labels.values()):,} labels: {counts}"] if counts else []
    who = card.config.get("annotator") or {}
    return lines if card.config["reward"].get("tape") else [*lines, *_listing(_of_kind(who))]


def _learned_source(card: CardData) -> list[str]:
    """Data and annotators of a reward that was learned while an agent played."""
    return [
        *(
            "## Data",
            "",
            f"- no dataset: the messages that an agent met as it played {escape(str(card.config['environment']['name']))}",
            "",
        ),
        *("## Annotators and prompts", ""),
        f"A reward of kind {_code(card.config['reward']['kind'])}, {_learned_from(card)}.",
        *("", *_learned_labels(card), ""),
    ]


def _of_kind(annotator: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an annotator without those of the kinds that it is not."""
    kinds = {"lexicon", "openai"} - {annotator.get("kind")}
    return {name: value for name, value in annotator.items() if name not in kinds}


def render(card: CardData) -> str:
    """Returns the card in Markdown."""
    command = card.versions.get("command", "unknown command")
    lines = [
        *("# Model card: a reward of game messages", ""),
        *(f"- run: {_code(card.folder)}", f"- made with: {_code(command)}"),
        f"- code: motif_jax, revision {_code(card.versions.get('git_revision', 'unknown'))}",
        *("", "## Use", ""),
        "An intrinsic reward for agents, and a study of what its annotator prefers. Not a judge of people's text.",
        "",
        *(_learned_source(card) if card.learned_online else [*_data(card), *_annotators(card)]),
        *("## Numbers", "", *_reward_metrics(card), _LIMITS),
        *("## Licence", "", card.licence or "Not stated by the owner of the weights.", "", _LICENCE, ""),
    ]
    if card.notes:
        lines += ["## Notes", "", card.notes, ""]
    settings = "\n".join(f"{name}: {json.dumps(value)}" for name, value in flat(card.config).items())
    return "\n".join([*lines, "## Settings", "", *_block(settings), ""])


def read(reward: TrainedReward) -> CardData:
    """The facts about a reward from its files, its run folder and its dataset."""
    from motif_jax.rewards.learned import LearnedReward

    folder = Path(reward.folder)
    card = CardData(str(folder), reward.config, _json(folder / "versions.json"))
    if isinstance(reward, LearnedReward):
        card.learned_online = True
        given = [label for label, _ in reward.labels.values()]
        # Those of pairs are no labels of a text.
        card.learned_labels = {
            name: given.count(label) for label, name in enumerate(SINGLE.verdicts) if given
        }
        return card
    card.evaluation = reward.curve[-1] if reward.curve else {}
    _read_data(card)
    return card


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
    return read_json(path, "restore a copy of it, or take it away and do without") if path.is_file() else {}
