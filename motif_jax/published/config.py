"""The configs of imports from files of others, and of exports for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from motif_jax.core import sections
from motif_jax.play.keys import CHECKPOINT
from motif_jax.rl.reward_keys import RewardCheckpoint
from motif_jax.schema import fraction, non_negative, one_of, plain_key, section_class, subsection


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
    agent: str | None = plain_key(None, "run folder of train_text or import_ilql, or its agent/")


@section_class
class ImportedFile:
    """The file that an import reads."""

    seed: int = sections.SEED
    file: str | None = None

    @property
    def path(self) -> str:
        """The path of the file, which `ImportStage` has checked."""
        return self.file or ""


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
class ImportRewardConfig(ImportedFile):
    """A reward from its file."""

    file: str | None = plain_key(None, "file reward.safetensors of export_reward")


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
        "empty: bc, dt, ilql, ilql_utterance or chai, by what the file holds; cql and psi look like ilql. 'upvote': the file is that of the "
        "upvote model, and becomes a folder like train_upvote's",
    )
    tokenizer: str | None = plain_key(
        None, "tokenizer of 'upvote': a folder with RoBERTa's tokenizer.json, or roberta-base"
    )
    discount: float = fraction(0.99, "discount of a step")
    heads: int = non_negative(0, "number of attention heads; 0: width / 64, as GPT-2 has")


@section_class
class ImportTorchAgentConfig(ImportedFile):
    """A checkpoint of the published PyTorch systems, of an agent."""

    kind: str = one_of(
        ("reward", "agent", "language_agent"), "what the file holds, as the variant says"
    )
    file: str | None = plain_key(None, "checkpoint to import, FILE.pth")
    names: str = plain_key(
        "", "choices by hand: LAYER/weight=NAME IN THE FILE, with commas between"
    )
    # The config of a training whose network the file has; the variant decides which of the two it
    # is.
    reward: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@section_class
class ImportTorchConfig(ImportTorchAgentConfig):
    """A checkpoint of the published PyTorch systems, of an agent or of a reward."""

    quantiles: str | None = plain_key(
        None, "the published quantile file beside it; None: no threshold"
    )
    mean: float | None = plain_key(None, "mean of the rewards; None: the file's reward_mean")
    variance: float | None = non_negative(
        None, "variance of the rewards; None: the file's reward_var"
    )
    quantile_row: int = plain_key(-1, "row of that file for this checkpoint; -1: the last")
