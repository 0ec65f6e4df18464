"""Model cards of exported rewards, with the parts of Mitchell et al. 2019, "Model cards for model
reporting".
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motif_jax.core.config import flat, listed
from motif_jax.core.errors import printable
from motif_jax.core.run_folder import read_description, stored_folders
from motif_jax.core.verdicts import SINGLE
from motif_jax.display import text_tables
from motif_jax.display.text_tables import markdown_escape as escape
from motif_jax.motif.annotation.annotator import ANNOTATORS
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.pairs.dataset import PairsDataset

if TYPE_CHECKING:
    from motif_jax.motif.reward.reward_model import RewardModel
    from motif_jax.oni.online_model import OnlineRewardModel

_LICENCE = (
    "The weights are a product of the data and the annotator above: their licences apply besides the Apache-2.0 licence "
    "of the code (the published Motif dataset and annotations are CC-BY-NC 4.0: no commercial use; language models have "
    "licences of their own). NetHack itself is under the NetHack General Public License."
)

# Longer texts (in characters) get a block of their own.
_LONG = 120


def _code(text: object) -> str:
    shown = printable(" ".join(str(text).split("\n")))
    return "`" + shown.replace("`", "'") + "`"


def _block(text: str) -> list[str]:
    """A text as code by its indentation, which no fence within it ends."""
    return ["    " + line for line in text.rstrip("\n").split("\n")]


def _listing(facts: Mapping[str, Any]) -> list[str]:
    """Short values as a list, long ones in blocks of their own after it."""
    lines = []
    blocks = []
    for name, value in flat(facts).items():
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) > _LONG or "\n" in text:
            blocks += ["", f"{escape(name)}:", "", *_block(text)]
        elif text:
            lines.append(f"- {escape(name)}: {_code(text)}")
    return [*lines, *blocks]


# Title -> the number, and of how many pairs it is.
_NUMBERS = {
    "validation accuracy, ties left out": ("validation/accuracy", "validation/accuracy_pairs"),
    "the same, both messages never trained on": ("validation_unseen/accuracy", "validation_unseen/accuracy_pairs"),
    "validation loss (nats per pair)": ("validation/loss", "validation/loss_pairs"),
    "expected calibration error": ("validation/calibration_error", "validation/accuracy_pairs"),
}  # fmt: skip


def _numbers(evaluation: Mapping[str, Any]) -> list[str]:
    rows = [
        (title, f"{evaluation[key]:.4f}", f"{evaluation[pairs]:,.0f}")
        for title, (key, pairs) in _NUMBERS.items()
        if key in evaluation and evaluation.get(pairs, 0)
    ]
    if not rows:
        return ["No evaluation of the reward was found.", ""]
    return [text_tables.markdown(("number", "value", "n (pairs)"), rows)]


_LIMITS = """## Limits

- It knows the messages of its dataset and what resembles them; on others its number is a guess. Compare the two accuracies above.
- It has the preferences and blind spots of its annotator, and pays for messages, not for what they stand for: under hallucination messages name things that are not there.
- Rewards are normalised over the training messages; on another dataset their scale means something else.
"""


def _data(config: Mapping[str, Any], datasets: Sequence[PairsDataset]) -> list[str]:
    if not datasets:
        folder = config.get("dataset_dir", "unknown")
        return [f"- dataset: {_code(folder)}, without a description (`dataset.json`)", ""]
    lines = []
    for dataset in datasets:
        # Leaves out the types and sizes of arrays.
        facts = {**dataset.meta, "arrays": ", ".join(dataset.meta.get("arrays", ()))}
        facts.pop("digests", None)
        lines += [*_listing(facts), ""]
    return lines


def _annotators(names: Sequence[str], datasets: Sequence[PairsDataset]) -> list[str]:
    if not datasets:
        return [
            f"- labels: {_code(', '.join(names) or 'unknown')}; nothing more is known of them",
            "",
        ]
    lines: list[str] = []
    for dataset, name in itertools.product(datasets, names):
        lines += [f"### Labels {_code(name)}", "", *_labels(dataset, name), ""]
    return lines


def _labels(dataset: PairsDataset, name: str) -> list[str]:
    """The lines about the labels of a dataset."""
    folder = dataset.folder / "annotations" / name
    lines = []
    if name in dataset.preference_names():
        numbers = counts(dataset.preference(name))
        total = sum(numbers.values())
        shares = (
            f"{escape(key)} {count:,} ({100 * count / total:.1f} %)"
            for key, count in numbers.items()
        )
        lines.append(f"- {total:,} pairs: {', '.join(shares)}")
    manifests = sorted(folder.glob("shard-*.json"))
    if not manifests:
        return [*lines, "- their manifest is not there: who made them is unknown"]
    manifest = read_description(manifests[0])
    annotator = manifest.get("annotator", {})
    if annotator.get("annotator") == "lexicon":
        lines.append(
            "- `lexicon` is a hand-written list of weighted patterns that stands in for a language model: the labels are "
            "those of its authors, not of a model"
        )
    return [*lines, *_listing({**annotator, "questions": manifest.get("questions", {})})]


def _learned(reward: OnlineRewardModel) -> tuple[list[str], list[str]]:
    """The lines about data and annotator of a reward that was learned while an agent played."""
    config = reward.config
    environment = escape(str(config["environment"]["name"]))
    # Labels of pairs do not label a single text.
    labels = [label for label, _ in reward.labels.values()]
    numbers = {
        verdict: labels.count(label) for label, verdict in enumerate(SINGLE.verdicts) if labels
    }
    annotator = config.get("annotator") or {}
    # Sections of annotators that were not asked.
    others = ANNOTATORS.parts.keys() - {annotator.get("kind")}

    data = [f"- no dataset: the messages that an agent met as it played {environment}", ""]
    lines = [
        f"A reward of kind {_code(config['reward']['kind'])}, learned while the agent played from labels of the annotator that follows.",
        "",
    ]
    if numbers:
        shares = ", ".join(f"{escape(verdict)} {count:,}" for verdict, count in numbers.items())
        lines.append(f"- {sum(numbers.values()):,} labels: {shares}")
    lines += _listing({name: value for name, value in annotator.items() if name not in others})
    return data, [*lines, ""]


def render(reward: RewardModel, licence: str = "", notes: str = "") -> str:
    """The card in Markdown; the owner gives the `licence` of the weights and `notes`."""
    from motif_jax.oni.online_model import OnlineRewardModel

    config = reward.config
    versions = read_description(Path(reward.folder) / "versions.json")
    evaluation: Mapping[str, Any] = {}
    if isinstance(reward, OnlineRewardModel):
        data, annotators = _learned(reward)
    else:
        names = listed(config.get("annotator") or "")
        folders = stored_folders(reward.folder, config.get("dataset_dir") or "")
        datasets = [PairsDataset.open(folder) for folder in folders] if names else []
        data = _data(config, datasets)
        annotators = _annotators(names, datasets)
        if reward.curve:
            evaluation = reward.curve[-1]
    settings = "\n".join(f"{name}: {json.dumps(value)}" for name, value in flat(config).items())
    lines = [
        "# Model card: a reward of game messages",
        "",
        f"- run: {_code(reward.folder)}",
        f"- made with: {_code(versions.get('command', 'unknown command'))}",
        f"- code: motif_jax, revision {_code(versions.get('git_revision', 'unknown'))}",
        *("", "## Use", ""),
        "An intrinsic reward for agents, and a study of what its annotator prefers. Not a judge of people's text.",
        *("", "## Data", "", *data),
        *("## Annotators and prompts", "", *annotators),
        *("## Numbers", "", *_numbers(evaluation), _LIMITS),
        *("## Licence", "", licence or "Not stated by the owner of the weights.", "", _LICENCE, ""),
    ]
    if notes:
        lines += ["## Notes", "", notes, ""]
    lines += ["## Settings", "", *_block(settings), ""]
    return "\n".join(lines)
