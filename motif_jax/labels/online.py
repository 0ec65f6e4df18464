"""Labels while an agent trains: what a training asks of an annotator, and what it gets (`sources.py`)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import Form
from motif_jax.labels import defaults
from motif_jax.labels.annotator import check_annotator
from motif_jax.labels.store import check_store
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import never

# Folder of a run's own answer store, in the run folder.
STORE = "answers"
CONVERSATIONS = "conversations"


class Labelled(NamedTuple):
    """An answer to one question.

    Attributes:
      item: the texts that it was about, as they were met.
      label: one of the form's verdicts, never unknown.
      probability: of one text that of yes; of two P(first) + P(tie) / 2; None where the annotator gives none.
      latency_seconds: from the question being sent to its answer; 0 for what the store had, and for equal texts.
      tokens: of prompts and answers together; 0 for what was not asked.
    """

    item: tuple[str, ...]
    label: int
    probability: float | None
    latency_seconds: float
    tokens: int


class LabelSource(Protocol):
    """Judges texts that a training meets. One thread may call `meet` while another calls `poll`."""

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Reaches the server, and has one question answered.

        Raises:
          StoppedError: `stopped` said so meanwhile; nothing of it is left.
          UserError: that is not possible; one line says why.
        """

    def meet(
        self,
        items: Sequence[tuple[str, ...]],
        counts: Sequence[int],
        scores: Sequence[float] | None,
        step: int,
    ) -> None:
        """Says which distinct texts of a batch have no label yet; never blocks.

        Args:
          items: the texts, tuples of one or two by the form.
          counts: the steps in which each was met.
          scores: how much each label is wanted, more is sooner (queue.order=uncertain); None for no opinion.
          step: environment steps of the run, which budgets a million steps are counted by.

        Raises:
          UserError: the annotator can ask no more, for good; see `poll`.
        """

    def poll(self) -> list[Labelled]:
        """What has been answered since the last call; never blocks.

        Raises:
          UserError: the annotator can ask no more, for good: the disk of its store is full.
        """

    def known(self, items: Sequence[tuple[str, ...]]) -> list[Labelled]:
        """Those of the texts that the answer store has a label of; for a start, as it waits for the disk."""

    def queued(self) -> int:
        """Questions that wait to be asked."""

    def in_flight(self) -> int:
        """Questions that are being asked, whose answers `poll` has not given."""

    def metrics(self) -> dict[str, float]:
        """Figures for a row of metrics (docs/metrics.md, `annotator/`), the same names from the first call on."""

    def state(self) -> dict[str, Any]:
        """What waits or is being asked, and what has been spent, for a checkpoint; JSON-able."""

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from a `state`; before `start`."""

    def close(self) -> None:
        """Ends the annotator; what is being asked is lost. The second call does nothing."""


def check(config: ConfigDict, form: Form) -> None:
    """Raises UserError for a bad value of the sections; asks no server and loads no model."""
    if config.annotator.store_dir:
        with in_section():
            check_store(config.annotator.store_dir)
    allowed = "lexicon, openai (a model of vLLM: bash launch/oni.sh MODEL), or module:Class of your own"
    checks.require(config.annotator.kind != "vllm", "annotator.kind", config.annotator.kind, allowed)
    with in_section():
        check_annotator(annotator_config(config), form)


def annotator_config(config: ConfigDict) -> ConfigDict:
    """The section `annotator` as annotators read a config, with the switches that concern them."""
    made = ConfigDict(config.annotator.to_dict())
    made.annotator = config.annotator.kind
    made.captions = ConfigDict({"messages": True, "status": False})
    switches = ("answer_first_match", "oni_label_anywhere")
    made.compat = ConfigDict({name: bool(config.compat.get(name, False)) for name in switches})
    return made


@contextlib.contextmanager
def in_section() -> Iterator[None]:
    """Names keys in errors as they are called in this config: config.annotator.goal for config.goal."""
    try:
        yield
    except UserError as error:
        text = re.sub(r"\bconfig\.annotator=", "config.kind=", str(error))
        # Keys of the section alone: an error may name files too, such as config.json.
        keys = "|".join(defaults.ANNOTATOR)
        raise UserError(re.sub(rf"\bconfig\.(?=({keys})\b)", "config.annotator.", text)) from error


def in_run(config: ConfigDict, folder: str | os.PathLike[str]) -> ConfigDict:
    """`config` with the folders of a run: its answer store, unless one is named, and its conversations, if they are kept."""
    config = config.copy_and_resolve_references()
    section = config.annotator.unlock()
    if not section.store_dir:
        section.store_dir = os.path.join(folder, STORE)
    section.conversations_dir = (
        os.path.join(folder, CONVERSATIONS) if section.get("keep_conversations") else ""
    )
    return config


def make_source(config: ConfigDict, form: Form) -> LabelSource:
    """The source of labels that `config` (the sections `annotator` and `queue`, and `compat`) asks for; its store has a name."""
    from motif_jax.labels.sources import InProcessSource, ServerSource

    return (ServerSource if config.annotator.kind == "openai" else InProcessSource)(config, form)
