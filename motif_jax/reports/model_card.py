"""Model cards: what a trained reward or agent is, what it was made from, what it reaches, and where it fails.

The parts follow Mitchell et al. 2019, "Model cards for model reporting".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.reports import measures, text_tables
from motif_jax.reports.statistics import Summary
from motif_jax.reports.text_tables import markdown_escape as escape
from motif_jax.support.config import flat
from motif_jax.support.errors import printable

_LICENCE = (
    "The weights are a product of the data and the annotator above: their licences apply besides the Apache-2.0 licence "
    "of the code (the published Motif dataset and annotations are CC-BY-NC 4.0: no commercial use; language models have "
    "licences of their own)."
)
_NETHACK = " NetHack itself is under the NetHack General Public License."

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
      kind: 'reward' or 'agent'.
      folder: of the run.
      config: of the run.
      versions: content of versions.json.
      dataset: content of dataset.json, {} for a dataset that was not written here or is not there.
      labels: by name, those that the reward was trained on and those that they combine.
      reward_summary: the evaluation that agents take, of the reward run's summary.json.
      evaluations: by name, as `evaluation_files.read_evaluation` returns them.
      trained_steps: environment steps of an agent, None when unknown.
      verdict: one line on reward hacking, '' when not judged.
      licence: of the weights, as their owner says; '' when not given.
      notes: further sentences of the owner.
      reward_folder: of an agent's intrinsic reward, or its file; '' without one.
      reward_card: the card data of that reward, None when that is not there.
      learned_online: whether it is a reward that was learned while an agent played.
      learned_labels: of such a reward, or of the agent that learned it: how many labels of each verdict, by name.
    """

    kind: str
    folder: str
    config: Mapping[str, Any]
    versions: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    reward_summary: Mapping[str, Any] = field(default_factory=dict)
    evaluations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    trained_steps: int | None = None
    verdict: str = ""
    licence: str = ""
    notes: str = ""
    reward_folder: str = ""
    reward_card: CardData | None = None
    learned_online: bool = False
    learned_labels: Mapping[str, int] = field(default_factory=dict)

    @property
    def environment(self) -> str:
        """Name of what an agent plays."""
        return str((self.config.get("environment") or {}).get("name", "unknown"))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fence(text: str, least: int) -> str:
    """As many backticks as end no code that holds `text`."""
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
        (title, f"{card.reward_summary[key]:.4f}", f"{card.reward_summary.get(pairs, 0):,.0f}")
        for key, (title, pairs) in names.items()
        if key in card.reward_summary and card.reward_summary.get(pairs, 0)
    ]
    if not rows:
        return ["No evaluation of the reward was found.", ""]
    return [text_tables.markdown(("number", "value", "n (pairs)"), rows)]


def _evaluations(card: CardData) -> list[str]:
    lines = []
    for name, evaluation in card.evaluations.items():
        summaries = {key: Summary.from_dict(value) for key, value in evaluation["measures"].items()}
        lines += [
            escape(
                f"{name}: {evaluation['episodes']} episodes of {evaluation['plan']['environment']}, "
                f"{100 * evaluation['confidence']:g} % intervals ({evaluation['intervals']})"
            ),
            "",
            text_tables.markdown(measures.HEADER, measures.table_rows(summaries)),
        ]
    return lines


def _limits(card: CardData) -> list[str]:
    lines = ["## Limits", ""]
    if card.kind == "reward":
        lines += [
            "- It knows the messages of its dataset and what resembles them; on others its number is a guess. Compare the "
            "two accuracies above.",
            "- It has the preferences and blind spots of its annotator, and pays for messages, not for what they stand for: "
            "under hallucination messages name things that are not there.",
            "- Rewards are normalised over the training messages; on another dataset their scale means something else.",
        ]
    else:
        lines += [
            f"- It plays one character (male human neutral monk) with the task's {28 if task.extended else 23} "
            "actions and its step limit; other characters and actions were never seen."
            if (task := TASKS.get(card.environment))
            else f"- It plays {escape(card.environment)} with its actions and its step limit; other tasks were never seen.",
            "- What it seeks is its reward, which can be collected without playing well.",
        ]
    if card.verdict:
        lines += [f"- {escape(card.verdict)}"]
    return [*lines, ""]


def _agent_reward(card: CardData) -> list[str]:
    reward = card.config.get("reward") or {}
    kind = reward.get("kind", "motif")
    if not reward.get("intrinsic_coefficient") or kind == "none":
        return ["Trained on the task's reward alone."]
    if card.reward_folder:
        known = "" if card.reward_card else ", which is not there: nothing more is known of it"
        return [f"Intrinsic reward: {_code(card.reward_folder)}{known}."]
    if not card.learned_labels:
        return [f"Intrinsic reward of kind {_code(kind)}, with the settings below."]
    return [f"Intrinsic reward of kind {_code(kind)}, {_learned_from(card)}.", "", *_learned_labels(card)]


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
    """Data and annotators of a reward that was learned while another agent played."""
    return [
        *(
            "## Data",
            "",
            f"- no dataset: the messages that an agent met as it played {escape(card.environment)}",
            "",
        ),
        *("## Annotators and prompts", ""),
        f"A reward of kind {_code(card.config['reward']['kind'])}, {_learned_from(card)}.",
        *("", *_learned_labels(card), ""),
    ]


def _of_kind(annotator: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an annotator without those of the kinds that it is not."""
    kinds = {"lexicon", "openai", "vllm"} - {annotator.get("kind")}
    return {name: value for name, value in annotator.items() if name not in kinds}


def render(card: CardData) -> str:
    """Returns the card in Markdown."""
    title = (
        "a reward of game messages" if card.kind == "reward" else f"an agent of {escape(card.environment)}"
    )
    source = card if card.kind == "reward" else card.reward_card
    lines = [f"# Model card: {title}", ""]
    command = card.versions.get("command", "unknown command")
    lines += [f"- run: {_code(card.folder)}", f"- made with: {_code(command)}"]
    lines += [f"- code: motif_jax, revision {_code(card.versions.get('git_revision', 'unknown'))}"]
    if card.kind == "agent":
        lines += [f"- task: {escape(card.environment)}"]
        trained = (
            "unknown" if card.trained_steps is None else f"{card.trained_steps:,} steps of the environments"
        )
        lines += [f"- trained for: {trained}"]
    lines += ["", "## Use", ""]
    lines += (
        [
            "An intrinsic reward for agents on NetHack, and a study of what its annotator prefers. Not a judge of people's text."
        ]
        if card.kind == "reward"
        else [f"Research on intrinsic motivation. It plays {escape(card.environment)} and does nothing else."]
    )
    lines += [""]
    if card.kind == "agent":
        lines += ["## Reward", "", *_agent_reward(card), ""]
    if source is not None:
        learned = source.learned_online
        lines += _learned_source(source) if learned else [*_data(source), *_annotators(source)]
    lines += ["## Numbers", ""]
    if source is not None:
        lines += _reward_metrics(source)
    lines += _evaluations(card)
    if card.kind == "agent" and not card.evaluations:
        lines += ["The agent was not evaluated.", ""]
    lines += _limits(card)
    licence = _LICENCE + (_NETHACK if card.kind == "reward" or card.environment in TASKS else "")
    lines += ["## Licence", "", card.licence or "Not stated by the owner of the weights.", "", licence, ""]
    if card.notes:
        lines += ["## Notes", "", card.notes, ""]
    settings = "\n".join(f"{name}: {json.dumps(value)}" for name, value in flat(card.config).items())
    lines += ["## Settings", "", *_block(settings), ""]
    return "\n".join(lines)
