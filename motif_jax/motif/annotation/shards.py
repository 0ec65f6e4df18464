"""Files of a dataset's annotation NAME: shards that processes write side by side, and the merged
label file.

annotations/NAME/shard-00003-of-00016.jsonl   question id, label, probabilities (format of
                                              `core/checked_lines.py`)
annotations/NAME/shard-00003-of-00016.json    manifest: model, prompt, sampling, dataset, versions
                                              (`BINDING`, and free ones)
annotations/NAME/probabilities.npy            float32 [pairs, 3] P(first), P(second), P(tie); NaN
                                              unknown
annotations/NAME/summary.json                 counts of the merged labels
preference/NAME.npy                           int8 [pairs] 0 first, 1 second, 2 tie, 3 unknown

All are made of the answer store and written whole: a shard when all of its questions are settled,
the labels when all shards are there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import files
from motif_jax.core.checked_lines import encode_line
from motif_jax.core.errors import UserError
from motif_jax.core.run_folder import differences
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.labels import PairLabels
from motif_jax.motif.annotation.store import StoredAnswer, read_answers

MANIFEST_FORMAT = 1
# Sections of a manifest that must be equal in all shards of one annotation.
BINDING = ("format", "name", "annotator", "dataset", "questions")
_SHARD = re.compile(r"shard-(\d{5})-of-(\d{5})\.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")


def check_name(name: str) -> None:
    """Raises UserError unless the published loader would read NAME.npy as label file NAME."""
    if _NAME.fullmatch(name) is None:
        raise UserError(
            f"config.name={name!r}: must be letters, digits, _, - or +, without a dot or a slash"
        )


class Annotation:
    """The files of annotation `name` in a dataset folder.

    `manifest` says what its labels depend on; shards whose manifests differ in a section of
    `BINDING` are another annotation's.
    """

    def __init__(self, dataset_folder: Path, name: str, manifest: Mapping[str, Any]) -> None:
        self.name = name
        self.manifest = manifest
        self.folder = dataset_folder / "annotations" / name
        self.preference_path = dataset_folder / "preference" / f"{name}.npy"
        self.probabilities_path = self.folder / "probabilities.npy"
        self.summary_path = self.folder / "summary.json"

    def shard_path(self, index: int, count: int) -> Path:
        """The answers of shard `index` of `count`; its manifest has the suffix .json."""
        return self.folder / f"shard-{index:05d}-of-{count:05d}.jsonl"

    def manifests(self) -> dict[tuple[int, int], Path]:
        """(index, count) -> manifest of every shard, also of other counts."""
        paths = {}
        for path in sorted(self.folder.glob("shard-*.json")):
            match = _SHARD.fullmatch(path.name)
            if match:
                paths[int(match[1]), int(match[2])] = path
        return paths

    def check(self) -> None:
        """Raises UserError where there are labels of this name that come from another
        annotation.
        """
        paths = self.manifests().values()
        for path in paths:
            differing = self._differences(path)
            if differing:
                raise UserError(
                    f"{path} belongs to another annotation ({'; '.join(differing)}): choose another --config.name, or discard its "
                    "labels with --config.restart=True"
                )
        if not paths and self.preference_path.exists():
            raise UserError(
                f"{self.preference_path} exists already and was not written by annotate: choose another --config.name, "
                "or replace it with --config.restart=True"
            )

    def _differences(self, manifest_path: Path) -> list[str]:
        stored = files.read_json(
            manifest_path, "choose another --config.name, or restore it from a copy"
        )
        return differences(stored, self.manifest, BINDING)

    def discard(self, index: int, count: int) -> None:
        """Removes the labels of this name, but no stored answers. Other shards of the same count
        are left to the commands that write them.
        """
        paths = [self.preference_path, self.probabilities_path, self.summary_path]
        for (shard_index, shard_count), path in self.manifests().items():
            if shard_count != count or shard_index == index:
                paths += [path, path.with_suffix(".jsonl")]
        for path in paths:
            path.unlink(missing_ok=True)

    def read_shard(self, index: int, count: int) -> dict[str, StoredAnswer]:
        """The answers of a shard by question id; {} where it is not there, or is another
        annotation's.
        """
        answers: dict[str, StoredAnswer] = {}
        path = self.shard_path(index, count)
        manifest_path = path.with_suffix(".json")
        if manifest_path.exists() and not self._differences(manifest_path):
            read_answers(path, answers)
        return answers

    def write_shard(
        self,
        index: int,
        count: int,
        questions: Sequence[Question],
        answers: Mapping[str, StoredAnswer],
    ) -> None:
        """Writes the shard of `questions`, each of which has an answer."""
        path = self.shard_path(index, count)
        # Of killed writers of this shard.
        files.remove_temporaries(self.folder, f".{path.stem}.*.tmp")
        lines = [encode_line(question.id, answers[question.id].to_json()) for question in questions]
        files.atomic_write_bytes(path, b"".join(lines))
        # Last: without it there is no shard.
        shard = {"index": index, "count": count}
        files.atomic_write_json(path.with_suffix(".json"), {**self.manifest, "shard": shard})

    def write(self, merged: PairLabels, summary: Mapping[str, Any]) -> None:
        """Writes probabilities, summary and, last, the label file."""
        # Written here and moved: preference/ never holds anything but label files.
        prepared = self.folder / "labels.npy"
        for path in (self.probabilities_path, self.summary_path, prepared):
            # Of killed commands, by name: the other temporaries in this folder may belong to
            # running ones.
            files.remove_temporaries(self.folder, f".{path.name}.*.tmp")
        files.atomic_save_npy(self.probabilities_path, merged.probabilities)
        files.atomic_write_json(self.summary_path, summary)
        files.atomic_save_npy(prepared, merged.labels)
        self.preference_path.parent.mkdir(exist_ok=True)
        os.replace(prepared, self.preference_path)
