"""The configs of imports from files of others, and of exports for others, by kind of file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import sections
from motif_jax.play.config import CHECKPOINT
from motif_jax.rl.reward_keys import RewardCheckpoint
from motif_jax.schema import (
    fraction,
    non_negative,
    plain_key,
    section,
    section_class,
    section_keys,
    subsection,
)


@section_class
class ExportRewardConfig:
    """A reward as one file, with its model card."""

    seed: int = sections.SEED
    reward: RewardCheckpoint = subsection(RewardCheckpoint)
    licence: str = plain_key("", "licence of the weights, for the model card")
    notes: str = plain_key("", "further sentences for the card")


@section_class
class ExportLanguageAgentConfig:
    """A language agent as a folder of the Hugging Face hub."""

    seed: int = sections.SEED
    agent: str | None = plain_key(None, "run folder of train_language_agent or clone_behaviour")
    checkpoint: str = CHECKPOINT


@section_class
class ExportTextAgentConfig:
    """An agent that writes as a folder of the Hugging Face hub."""

    seed: int = sections.SEED
    agent: str | None = plain_key(None, "run folder of train_text or import:ilql, or its agent/")


EXPORTS: Mapping[str, Any] = {
    "reward": ExportRewardConfig,
    "language_agent": ExportLanguageAgentConfig,
    "text_agent": ExportTextAgentConfig,
}


@section_class
class ImportedFile:
    """The file that an import reads."""

    seed: int = sections.SEED
    file: str | None = None

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file or ""


@section_class
class ImportRewardConfig(ImportedFile):
    """A reward from the file that `export:reward` wrote."""

    file: str | None = plain_key(None, "file reward.safetensors of export:reward")


@section_class
class ImportDialoguesConfig(ImportedFile):
    """Dialogues from a file of others."""

    file: str | None = plain_key(
        None,
        "FILE.jsonl: {sequence: [[text, is_action], ...], reward: [...], done} a line; FILE.pkl: published Wordle games",
    )
    words: str = plain_key(
        "", "word list under which Wordle games are replayed; empty: the one that the file names"
    )


@section_class
class ImportIlqlConfig(ImportedFile):
    """An agent of the published ILQL code."""

    file: str | None = plain_key(None, "checkpoint to import, outputs/.../model.pkl")
    task: str = plain_key(
        "wordle", "task that it was trained for: wordle, visdial, reddit, or module:Class"
    )
    options: str = plain_key("", "options of the task as JSON")
    method: str = plain_key(
        "",
        "empty: bc, dt, ilql, ilql_utterance or chai, by what the file holds; cql and psi look like ilql",
    )
    discount: float = fraction(0.99, "discount of a step")
    heads: int = non_negative(0, "number of attention heads; 0: width / 64, as GPT-2 has")


@section_class
class ImportUpvoteConfig(ImportedFile):
    """The upvote model of the published ILQL code."""

    file: str | None = plain_key(None, "checkpoint to import, outputs/.../model.pkl")
    tokenizer: str | None = plain_key(
        None, "a folder with RoBERTa's tokenizer.json, or its name on the hub: roberta-base"
    )
    heads: int = non_negative(0, "number of attention heads; 0: width / 64, as RoBERTa has")


@section_class
class ImportLanguageAgentConfig(ImportedFile):
    """An agent of GLAM or of its behaviour cloning."""

    file: str | None = plain_key(None, "checkpoint to import, model.checkpoint")
    # The config of a training whose network the file has.
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# Of layers that shape, order and hints in names leave open.
_NAMES = plain_key("", "choices by hand: LAYER/weight=NAME IN THE FILE, with commas between")


@section_class
class ImportAgentConfig(ImportedFile):
    """An agent of Motif or of ONI."""

    file: str | None = plain_key(None, "checkpoint to import, FILE.pth")
    names: str = _NAMES
    # The config of a training whose network the file has.
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@section_class
class ImportMotifRewardConfig(ImportedFile):
    """A reward of Motif, or the network of a ranking of ONI."""

    file: str | None = plain_key(None, "checkpoint to import, FILE.pth")
    names: str = _NAMES
    # The config of a training whose network the file has.
    reward: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    quantiles: str | None = plain_key(
        None, "the published quantile file beside it; None: no threshold"
    )
    mean: float | None = plain_key(None, "mean of the rewards; None: the file's reward_mean")
    variance: float | None = non_negative(
        None, "variance of the rewards; None: the file's reward_var"
    )
    quantile_row: int = plain_key(-1, "row of that file for this checkpoint; -1: the last")


IMPORTS: Mapping[str, type[ImportedFile]] = {
    "reward": ImportRewardConfig,
    "motif_reward": ImportMotifRewardConfig,
    "motif_agent": ImportAgentConfig,
    "oni": ImportAgentConfig,
    "glam": ImportLanguageAgentConfig,
    "ilql": ImportIlqlConfig,
    "upvote": ImportUpvoteConfig,
    "dialogues": ImportDialoguesConfig,
}


def of_kind(stage: str, kinds: Mapping[str, Any], variant: str | None) -> ConfigDict:
    """The config of `stage` for the kind of file that the variant names, by default the first one
    of `kinds`.
    """
    kind = variant or next(iter(kinds))
    if kind not in kinds:
        raise checks.unknown_variant(variant, ("", *kinds))
    key = plain_key(kind, "kind of the file, as the variant says", choices=tuple(kinds))
    return section({"stage": stage, "kind": key, **section_keys(kinds[kind])})
