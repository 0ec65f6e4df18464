"""A user's dialogues as a text task, optionally with an environment."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogues, DialogueStream
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy
from motif_jax.ilql.tasks.file_tokens import NEW, FileTokenTask

RECORDED = "recorded"


class RecordedDialogues(FileTokenTask):
    """The task `dialogues`.

    Options: `data`, a file of dialogues or its folder; `tokenizer`, a folder with tokenizer.json,
    or '' to learn `vocab_size` tokens; `turns`, 'own' where a chat model's own turns surround
    utterances, or 'new' for delimiters of dialogues; `environment`, the `module:Class` of a
    `TextEnvironment` without arguments, for play.
    """

    name = "dialogues"
    kinds = (RECORDED,)
    paths = ("data", "tokenizer")
    defaults: ClassVar[Mapping[str, Any]] = {
        "data": "",
        "tokenizer": "",
        "vocab_size": 2000,
        "turns": NEW,
        "environment": "",
    }

    @functools.cached_property
    def _dialogues(self) -> Dialogues:
        return dialogue_files.read(dialogue_files.find(self.options["data"], "data"))

    def files(self) -> dict[str, Path]:
        # Games in an environment do not depend on the recorded dialogues, which need not be there
        # any more.
        if not self.options["data"] or self.options["environment"]:
            return {}
        return {"data": dialogue_files.find(self.options["data"], "data")}

    def undrawn(self) -> tuple[str, ...]:
        return ("data",) if self.options["environment"] else ()

    def count(self, kind: str) -> int:
        return len(self._dialogues)

    def endless(self, kind: str) -> bool:
        return False

    def stream(self, kind: str, policy: str) -> DialogueStream:
        return lambda rng, count, first: self._dialogues[first : first + count]

    def check(self, kind: str, policy: str) -> None:
        super().check(kind, policy)
        if not self.options["data"]:
            raise UserError("config.data=None: give a file of dialogues, --config.data=FILE.jsonl")
        # Reads the file, so that its errors come before any work.
        len(self._dialogues)

    def check_episodes(self) -> None:
        self._environment_class()

    def _environment_class(self) -> type[TextEnvironment]:
        if not self.options["environment"]:
            raise UserError(
                "config.task=dialogues: has no environment to play in; give one with "
                '--config.options=\'{"environment": "module:Class"}\''
            )
        loaded: type[TextEnvironment] = entry_points.load("options", self.options["environment"])
        return loaded

    def environment(self) -> TextEnvironment:
        return self._environment_class()()

    def policy(self, name: str) -> TextPolicy:
        raise UserError(f"config.policy={name}: must be None: the task dialogues has no policies")
