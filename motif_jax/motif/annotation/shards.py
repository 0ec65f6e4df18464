"""Files of a dataset's annotation NAME: shards that processes write side by side, and the merged label file.

annotations/NAME/shard-00003-of-00016.json    manifest: model, prompt, sampling, dataset, versions (`BINDING`, and free ones)
annotations/NAME/shard-00003-of-00016.jsonl   question id, label, probabilities (format of `core/checked_lines.py`)
annotations/NAME/probabilities.npy            float32 [pairs, 3] P(first), P(second), P(tie); NaN unknown
annotations/NAME/summary.json                 counts of the merged labels
annotations/NAME/ensemble.json                sources of the labels of `ensembles`, which have no shards
preference/NAME.npy                           int8 [pairs] 0 first, 1 second, 2 tie, 3 unknown
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import files
from motif_jax.core.checked_lines import LineWriter, read_lines
from motif_jax.core.errors import UserError
from motif_jax.core.locks import lock
from motif_jax.core.run_folder import differences
from motif_jax.core.verdicts import TIE, UNKNOWN
from motif_jax.motif.annotation import labels as label_math
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import StoredAnswer, read_answers

MANIFEST_FORMAT = 1
# Sections of a manifest that must be equal in all shards of one annotation.
BINDING = ("format", "name", "annotator", "dataset", "questions")
_SHARD = re.compile(r"shard-(\d{5})-of-(\d{5})\.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")


def check_name(name: str) -> None:
    """Raises UserError unless the published loader would read NAME.npy as label file NAME."""
    if not _NAME.fullmatch(name):
        raise UserError(f"config.name={name!r}: must be letters, digits, _, - or +, without a dot or a slash")


def read_manifest(path: Path) -> dict[str, Any] | None:
    """A shard's manifest, None if missing. Raises UserError: the file is none."""
    remedy = "choose another --config.name, or restore it from a copy"
    return files.read_json(path, remedy) if path.exists() else None


class Annotation:
    """The files of annotation `name` in a dataset folder."""

    def __init__(self, dataset_folder: Path, name: str) -> None:
        self.name = name
        self.folder = dataset_folder / "annotations" / name
        self.preference_path = dataset_folder / "preference" / f"{name}.npy"
        self.probabilities_path = self.folder / "probabilities.npy"
        self.summary_path = self.folder / "summary.json"
        self.ensemble_path = self.folder / "ensemble.json"

    def shard_path(self, index: int, count: int, suffix: str) -> Path:
        return self.folder / f"shard-{index:05d}-of-{count:05d}.{suffix}"

    def manifests(self) -> dict[tuple[int, int], Path]:
        found = {}
        for path in sorted(self.folder.glob("shard-*.json")):
            if match := _SHARD.fullmatch(path.name):
                found[int(match[1]), int(match[2])] = path
        return found

    def check(self, manifest: Mapping[str, Any]) -> None:
        if self.ensemble_path.exists():
            raise UserError(
                f"{self.ensemble_path}: merge_annotations made the labels of this name: choose another --config.name, or "
                "replace them with --config.restart=True"
            )
        paths = self.manifests().values()
        for path in paths:
            if found := differences(read_manifest(path) or manifest, manifest, BINDING):
                raise UserError(
                    f"{path} belongs to another annotation ({'; '.join(found)}): choose another --config.name, or discard its "
                    "labels with --config.restart=True"
                )
        if not paths and self.preference_path.exists():
            raise UserError(
                f"{self.preference_path} exists already and was not written by annotate: choose another --config.name, "
                "or replace it with --config.restart=True"
            )

    def known_labels(self) -> int:
        """The number of labelled pairs in preference/NAME.npy, else of answers in the shards."""
        if self.preference_path.exists():
            with contextlib.suppress(ValueError, OSError, EOFError):
                return int((np.load(self.preference_path, mmap_mode="r") != UNKNOWN).sum())
        shards = [path.with_suffix(".jsonl") for path in self.manifests().values()]
        return len({key for path in shards for key, _ in read_lines(path)})

    def discard(self, index: int, count: int) -> int:
        """Removes the labels of this name, but no stored answers; returns their number.

        Other shards of the same count are left to their processes. Raises UserError: another process writes one that would go.
        """
        known = self.known_labels()
        for path in (self.preference_path, self.probabilities_path, self.summary_path, self.ensemble_path):
            path.unlink(missing_ok=True)
        for (other, total), path in self.manifests().items():
            if total == count and other != index:
                continue
            with Shard(path.with_suffix(".jsonl"), other, total, self.name):
                path.unlink(missing_ok=True)
                path.with_suffix(".jsonl").unlink(missing_ok=True)
        return known

    def open_shard(self, index: int, count: int, manifest: Mapping[str, Any]) -> Shard:
        """Locks a shard and writes or renews its manifest. Raises UserError: another process writes this shard."""
        path = self.shard_path(index, count, "jsonl")
        shard = Shard(path, index, count, self.name)
        manifest_path = path.with_suffix(".json")
        files.remove_temporaries(self.folder, f".{manifest_path.name}.*.tmp")
        old = read_manifest(manifest_path)
        if old is None:
            files.atomic_write_json(manifest_path, manifest)
        elif manifest["versions"] not in (old.get("versions"), *old.get("later_versions", [])):
            later = [*old.get("later_versions", []), manifest["versions"]]
            files.atomic_write_json(manifest_path, {**old, "later_versions": later})
        return shard

    def read_answers(
        self, questions: QuestionList, count: int, manifest: Mapping[str, Any]
    ) -> tuple[list[StoredAnswer | None], list[int]]:
        """Reads all `count` shards: the answer to each question, and the indices of unfinished shards."""
        ids = {question.id: None for question in questions.questions}
        answers: dict[str, StoredAnswer] = {}
        unfinished = []
        for index in range(count):
            path = self.shard_path(index, count, "jsonl")
            old = read_manifest(path.with_suffix(".json"))
            if old is not None and not differences(old, manifest, BINDING):
                read_answers(path, answers, ids)
                if all(question.id in answers for question in questions.shard(index, count)):
                    continue
            unfinished.append(index)
        return [answers.get(key) for key in ids], unfinished

    @contextlib.contextmanager
    def merging(self) -> Iterator[None]:
        """Holds the merge lock of this annotation, waiting for other processes. Raises UserError: no locks here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".merge-lock", "a", encoding="utf-8", opener=files.regular_file) as file:
            lock(file, file.name, wait=True)
            yield

    def write(
        self,
        merged: MergedLabels,
        summary: Mapping[str, Any],
        beside: Mapping[Path, Any] = MappingProxyType({}),
    ) -> None:
        """Writes probabilities, summary, the JSON files `beside` them and, last, the label file; call it while `merging`."""
        # Made here and moved: preference/ never holds anything but label files.
        prepared = self.folder / "labels.npy"
        for path in (self.probabilities_path, self.summary_path, prepared, *beside):
            files.remove_temporaries(self.folder, f".{path.name}.*.tmp")  # other files here may be in use
        files.atomic_save_npy(self.probabilities_path, merged.probabilities)
        for path, value in {self.summary_path: summary, **beside}.items():
            files.atomic_write_json(path, value)
        files.atomic_save_npy(prepared, merged.labels)
        self.preference_path.parent.mkdir(exist_ok=True)
        os.replace(prepared, self.preference_path)


class Shard(LineWriter):
    """A shard of annotation `name` that this process holds."""

    def __init__(self, path: Path, index: int, count: int, name: str) -> None:
        self.name = name
        try:
            super().__init__(path)
        except BlockingIOError:
            raise UserError(
                f"shard {index} of {count} of annotation {name} is being written by another process: wait for it or stop "
                "it, or give each process its own --config.shard_index"
            ) from None

    def answers(self) -> dict[str, StoredAnswer]:
        answers: dict[str, StoredAnswer] = {}
        read_answers(self.path, answers)
        return answers

    def add(self, answers: Iterable[tuple[Question, StoredAnswer]]) -> None:
        lines = [(question, answer.to_json()) for question, answer in answers]
        for question, line in lines:
            if line["label"] != UNKNOWN:
                line.setdefault("p", list(question.form.certain(line["label"])))
        self.append((question.id, line) for question, line in lines)


class MergedLabels(NamedTuple):
    """Labels int8 [pairs], probabilities float32 [pairs, 3], and the position bias if both orders were asked."""

    labels: np.ndarray
    probabilities: np.ndarray
    position_bias: dict[str, float] | None


def merge(questions: QuestionList, answers: list[StoredAnswer | None]) -> MergedLabels:
    """Labels of the pairs from the answers to all questions; both orders of a pair are averaged."""
    said = np.array([UNKNOWN if a is None else a.label for a in answers] + [TIE], np.int8)
    probabilities = label_math.one_hot(said)
    for place, answer in enumerate(answers):
        if answer is not None and answer.probabilities is not None and answer.label != UNKNOWN:
            probabilities[place] = answer.probabilities
    # The extra last row is the tie of equal captions, which `asked` points to with -1.
    by_order = probabilities[questions.asked]
    by_order = np.where(questions.swapped[..., None], by_order[..., label_math.TURNED[:3]], by_order)
    spoken = said[questions.asked]
    labels = np.where(questions.swapped, label_math.TURNED[spoken], spoken)
    if questions.asked.shape[1] == 1:
        return MergedLabels(labels[:, 0], by_order[:, 0].astype(np.float32), None)
    mean = label_math.mean_probabilities(np.moveaxis(by_order, 1, 0))
    asked = questions.asked[:, 0] >= 0
    bias = label_math.position_bias(spoken[asked, 0], spoken[asked, 1])
    return MergedLabels(label_math.most_probable(mean), mean, bias)
