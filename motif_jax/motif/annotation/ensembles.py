"""Several annotators' labels of one dataset: agreement tables, and a combined label file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from motif_jax.core.errors import UserError
from motif_jax.motif.annotation import labels as label_math
from motif_jax.motif.annotation.shards import Annotation, PairLabels, read_manifest
from motif_jax.motif.pairs.dataset import map_array

NO_GOAL = "no goal"


class Votes(NamedTuple):
    """Labels int8 [pairs] and probabilities float32 [pairs, 3] of one annotation; a goal, or
    NO_GOAL.
    """

    name: str
    goal: str
    labels: np.ndarray
    probabilities: np.ndarray


def read_votes(dataset_folder: Path, name: str, labels: np.ndarray) -> Votes:
    """Adds goal and probabilities (one-hot without a file) to labels. Raises UserError: they do not
    belong to these labels.
    """
    annotation = Annotation(dataset_folder, name)
    probabilities = label_math.one_hot(labels)
    path = annotation.probabilities_path
    if path.exists():
        probabilities = map_array(path)
        if probabilities.shape != (len(labels), 3):
            raise UserError(f"{path}: shape {probabilities.shape}, expected ({len(labels)}, 3)")
    return Votes(name, _goal(annotation), labels, probabilities)


def _goal(annotation: Annotation) -> str:
    """The goal of the manifest, else the one in a name of the published scheme."""
    for path in annotation.manifests().values():
        manifest = read_manifest(path) or {}
        goal = (manifest.get("annotator") or {}).get("goal")
        if goal:
            return str(goal)
    match = re.search(r"_msg_(?:minbl_)?([A-Za-z0-9-]+)", annotation.name)
    return match[1] if match else NO_GOAL


def combine(votes: Sequence[Votes], method: str) -> PairLabels:
    """Combines several annotators' labels of each pair; unknown ones do not count.

    'majority': the verdict with most votes, a tie for a draw; probabilities are shares of the
    votes. 'mean': the mean of the probabilities, and the label that all give, else the most
    probable verdict of the mean.
    """
    majority = method == "majority"
    # The mean of one-hot labels is each verdict's share of the votes.
    answers = [
        label_math.one_hot(vote.labels) if majority else vote.probabilities for vote in votes
    ]
    mean = label_math.mean_probabilities(np.stack(answers))
    if majority:
        return PairLabels(label_math.most_probable(mean), mean, None)
    return PairLabels(
        label_math.agreed(np.stack([vote.labels for vote in votes]), mean), mean, None
    )


def agreement(votes: Sequence[Votes]) -> list[dict[str, Any]]:
    """For each two annotations: pairs that both know, share of equal labels, Cohen's kappa."""
    rows = []
    for first, second in itertools.combinations(votes, 2):
        counts = label_math.confusion(first.labels, second.labels)
        total = int(counts.sum())
        rows.append(
            {
                "first": first.name,
                "second": second.name,
                "pairs": total,
                "equal": float(np.trace(counts) / total) if total else float("nan"),
                "kappa": label_math.cohen_kappa(counts),
            }
        )
    return rows


def tables(votes: Sequence[Votes]) -> str:
    """For each goal, then for all: counts of the labels and pairwise agreement."""
    groups: dict[str, list[Votes]] = {}
    for vote in votes:
        groups.setdefault(vote.goal, []).append(vote)
    parts = [
        _table(f"goal {goal}" if goal != NO_GOAL else goal, group) for goal, group in groups.items()
    ]
    if len(groups) > 1:
        parts.append(_agreement_table("across goals", votes))
    return "\n\n".join(parts)


def _table(title: str, votes: Sequence[Votes]) -> str:
    counts = pd.DataFrame({vote.name: label_math.counts(vote.labels) for vote in votes}).T
    text = f"{title}\n{counts.to_string(formatters=['{:,}'.format] * counts.shape[1])}"
    if len(votes) > 1:
        text += f"\n{_agreement_table('agreement', votes)}"
    return text


def _agreement_table(title: str, votes: Sequence[Votes]) -> str:
    formats = {"pairs": "{:,}".format, "equal": "{:.1%}".format, "kappa": "{:.3f}".format}
    table = pd.DataFrame(agreement(votes)).to_string(index=False, formatters=formats)
    return f"{title}\n{table}"


def check_name_is_free(dataset_folder: Path, name: str, sources: Mapping[str, Any]) -> None:
    """Raises UserError: there are labels of that name which were not made from these sources."""
    annotation = Annotation(dataset_folder, name)
    if annotation.manifests():
        raise UserError(
            f"{annotation.folder}: annotate made the labels of this name: choose another --config.name, or replace them "
            "with --config.restart=True"
        )
    stored_sources = (read_manifest(annotation.ensemble_path) or {}).get("sources")
    if annotation.preference_path.exists() and stored_sources != sources:
        raise UserError(
            f"{annotation.preference_path} exists already and was made from other labels: choose another "
            "--config.name, or replace it with --config.restart=True"
        )


def write_ensemble(
    dataset_folder: Path, name: str, merged: PairLabels, sources: Mapping[str, Any], restart: bool
) -> Path:
    """Writes labels, probabilities and sources. Raises UserError as `check_name_is_free`, unless
    `restart`.
    """
    if not restart:
        check_name_is_free(dataset_folder, name, sources)
    annotation = Annotation(dataset_folder, name)
    path = annotation.ensemble_path
    with annotation.merging():
        if restart:
            # As shard 0 of 1, which leaves no shard of any count.
            annotation.discard(0, 1)
        summary = {"pairs": len(merged.labels), **label_math.counts(merged.labels)}
        # `write` puts the sources on disk before the labels: after a kill between them, the same
        # command recognises its own.
        annotation.write(merged, summary, {path: {"sources": sources}})
    return annotation.preference_path
