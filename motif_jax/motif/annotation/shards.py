"""Files of a dataset's annotation NAME: shards that processes write side by side, and the merged
label file.

annotations/NAME/shard-00003-of-00016.json    manifest: model, prompt, sampling, dataset, versions
                                              (`BINDING`, and free ones)
annotations/NAME/shard-00003-of-00016.jsonl   question id, label, probabilities (format of
                                              `core/checked_lines.py`)
annotations/NAME/probabilities.npy            float32 [pairs, 3] P(first), P(second), P(tie); NaN
                                              unknown
annotations/NAME/summary.json                 counts of the merged labels
preference/NAME.npy                           int8 [pairs] 0 first, 1 second, 2 tie, 3 unknown
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
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
from motif_jax.motif.annotation.store import StoredAnswer, is_settled, read_answers

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


def read_manifest(path: Path) -> dict[str, Any] | None:
    """A shard's manifest, None if missing. Raises UserError: the file is none."""
    remedy = "choose another --config.name, or restore it from a copy"
    return files.read_json(path, remedy) if path.exists() else None


def _has_answers(manifest_path: Path) -> bool:
    """Whether the shard of this manifest has an answer."""
    return any(True for _ in read_lines(manifest_path.with_suffix(".jsonl")))


class Annotation:
    """The files of annotation `name` in a dataset folder."""

    def __init__(self, dataset_folder: Path, name: str) -> None:
        self.name = name
        self.folder = dataset_folder / "annotations" / name
        self.preference_path = dataset_folder / "preference" / f"{name}.npy"
        self.probabilities_path = self.folder / "probabilities.npy"
        self.summary_path = self.folder / "summary.json"

    def shard_path(self, index: int, count: int, suffix: str) -> Path:
        """The file of shard `index` of `count`: its manifest (json) or its answers (jsonl)."""
        return self.folder / f"shard-{index:05d}-of-{count:05d}.{suffix}"

    def manifests(self) -> dict[tuple[int, int], Path]:
        """(index, count) -> manifest of every shard, also of other counts."""
        paths = {}
        for path in sorted(self.folder.glob("shard-*.json")):
            match = _SHARD.fullmatch(path.name)
            if match:
                paths[int(match[1]), int(match[2])] = path
        return paths

    def check(self, manifest: Mapping[str, Any]) -> None:
        """Raises UserError where the labels of this name come from another annotation than that of
        `manifest`.

        A shard without answers is another's only where there is a label file, as of a dataset that
        was copied without its answers. Else a run has ended before its first answer, and
        `open_shard` replaces its manifest.
        """
        paths = self.manifests().values()
        for path in paths:
            # A file that another process has removed meanwhile differs in nothing.
            differing = differences(read_manifest(path) or manifest, manifest, BINDING)
            if differing and (self.preference_path.exists() or _has_answers(path)):
                raise UserError(
                    f"{path} belongs to another annotation ({'; '.join(differing)}): choose another --config.name, or discard its "
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
            # The number is only printed: a damaged file is removed all the same.
            with contextlib.suppress(ValueError, OSError, EOFError):
                return int((np.load(self.preference_path, mmap_mode="r") != UNKNOWN).sum())
        questions: set[str] = set()
        for path in self.manifests().values():
            questions |= {key for key, _ in read_lines(path.with_suffix(".jsonl"))}
        return len(questions)

    def discard(self, index: int, count: int) -> int:
        """Removes the labels of this name, but no stored answers; returns their number.

        Other shards of the same count are left to the commands that write them. Raises UserError:
        another process writes a shard that would be removed; then nothing is.
        """
        number = self.known_labels()
        # All are locked before a file goes, so that no other process is writing one of them.
        with contextlib.ExitStack() as locks:
            paths = [
                self.preference_path,
                self.probabilities_path,
                self.summary_path,
            ]
            for (shard_index, shard_count), path in self.manifests().items():
                if shard_count == count and shard_index != index:
                    continue
                answers_path = path.with_suffix(".jsonl")
                locks.enter_context(Shard(answers_path, shard_index, shard_count, self.name))
                paths += [path, answers_path]
            for path in paths:
                path.unlink(missing_ok=True)
        return number

    def open_shard(self, index: int, count: int, manifest: Mapping[str, Any]) -> Shard:
        """Locks a shard and writes or renews its manifest. Raises UserError: another process writes
        this shard.

        The manifest of another annotation that left no answers is replaced.
        """
        path = self.shard_path(index, count, "jsonl")
        shard = Shard(path, index, count, self.name)
        manifest_path = path.with_suffix(".json")
        # Of killed writers of this shard, whose lock is held here.
        files.remove_temporaries(self.folder, f".{manifest_path.name}.*.tmp")
        stored = read_manifest(manifest_path)
        is_anothers = stored is not None and bool(differences(stored, manifest, BINDING))
        if stored is None or (is_anothers and not _has_answers(manifest_path)):
            files.atomic_write_json(manifest_path, manifest)
            return shard

        # Versions of packages do not bind, but the manifest lists all that wrote to the shard.
        later_versions = stored.get("later_versions", [])
        if manifest["versions"] not in (stored.get("versions"), *later_versions):
            later_versions = [*later_versions, manifest["versions"]]
            files.atomic_write_json(manifest_path, {**stored, "later_versions": later_versions})
        return shard

    def read_answers(
        self, questions: QuestionList, count: int, manifest: Mapping[str, Any], attempts: int
    ) -> tuple[list[StoredAnswer | None], list[int]]:
        """Reads all `count` shards: the answer to each question, and the indices of unfinished
        shards.

        A shard is unfinished where a question has no answer, or an unknown one and is asked again,
        `attempts` times in all.
        """
        # A dict, not a set: it keeps the order of the questions.
        ids = {question.id: None for question in questions.questions}
        answers: dict[str, StoredAnswer] = {}
        unfinished = []
        for index in range(count):
            path = self.shard_path(index, count, "jsonl")
            # A shard that is not there, or is of another annotation, is unfinished.
            stored = read_manifest(path.with_suffix(".json"))
            is_finished = False
            if stored is not None and not differences(stored, manifest, BINDING):
                read_answers(path, answers, ids)
                is_finished = all(
                    is_settled(answers.get(question.id), attempts)
                    for question in questions.shard(index, count)
                )
            if not is_finished:
                unfinished.append(index)
        return [answers.get(key) for key in ids], unfinished

    @contextlib.contextmanager
    def merging(self) -> Iterator[None]:
        """Holds the merge lock of this annotation, waiting for other processes. Raises UserError:
        no locks here.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(
            self.folder / ".merge-lock", "a", encoding="utf-8", opener=files.regular_file
        ) as file:
            lock(file, file.name, wait=True)
            yield

    def write(self, merged: PairLabels, summary: Mapping[str, Any]) -> None:
        """Writes probabilities, summary and, last, the label file; call it while `merging`."""
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
        """The shard's answers by question id."""
        answers: dict[str, StoredAnswer] = {}
        read_answers(self.path, answers)
        return answers

    def add(self, answers: Iterable[tuple[Question, StoredAnswer]]) -> None:
        """Appends answers; those without probabilities get the certain ones of their label, so that
        readers find them always.
        """
        lines = []
        for question, answer in answers:
            line = answer.to_json()
            if answer.label != UNKNOWN:
                line.setdefault("p", list(question.form.certain(answer.label)))
            lines.append((question.id, line))
        self.append(lines)


class PairLabels(NamedTuple):
    """Labels int8 [pairs], probabilities float32 [pairs, 3], and the position bias if both orders
    were asked.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    position_bias: dict[str, float] | None


def labels_of_pairs(questions: QuestionList, answers: list[StoredAnswer | None]) -> PairLabels:
    """Labels of the pairs from the answers to all questions; both orders of a pair are averaged."""
    # One row more than there are questions: the tie of equal captions, which `question_indices`
    # point to with -1.
    question_labels = np.array(
        [UNKNOWN if a is None else a.label for a in answers] + [TIE], np.int8
    )
    question_probabilities = label_math.one_hot(question_labels)
    for index, answer in enumerate(answers):
        if answer is not None and answer.probabilities is not None and answer.label != UNKNOWN:
            question_probabilities[index] = answer.probabilities

    # [pairs, orders] and [pairs, orders, 3]: each pair's answers, then turned to the pair's own
    # order.
    shown_labels = question_labels[questions.question_indices]
    labels = np.where(questions.swapped, label_math.TURNED[shown_labels], shown_labels)
    probabilities = question_probabilities[questions.question_indices]
    turned = probabilities[..., label_math.TURNED[:3]]
    probabilities = np.where(questions.swapped[..., None], turned, probabilities)

    if questions.question_indices.shape[1] == 1:
        return PairLabels(labels[:, 0], probabilities[:, 0].astype(np.float32), None)
    # To [orders, pairs, 3].
    mean = label_math.mean_probabilities(np.moveaxis(probabilities, 1, 0))
    # Equal captions were not asked about, and say nothing of the judge.
    was_asked = questions.question_indices[:, 0] >= 0
    bias = label_math.position_bias(shown_labels[was_asked, 0], shown_labels[was_asked, 1])
    return PairLabels(label_math.agreed(labels.T, mean), mean, bias)
