"""Joins several datasets of pairs to one, with their labels."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.run_folder import differences
from motif_jax.motif.annotation import shards
from motif_jax.motif.config import JoinDatasetsConfig
from motif_jax.motif.pairs import layout, targets, writer
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.schema import read_section

IDENTITY = ("stage", "dataset_dirs", "names")
_PLAYERS = "players"


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError where the datasets do not fit each other, or one lacks a label file of
    `config.names`.
    """
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(JoinDatasetsConfig, config_tree)
    folders = checks.listed(config.dataset_dirs)
    checks.require_key(
        config, "dataset_dirs", len(folders) > 1, "at least two folders, with commas between"
    )
    distinct = {Path(folder).resolve() for folder in folders}
    checks.require_key(config, "dataset_dirs", len(distinct) == len(folders), "different folders")
    datasets = [PairsDataset.open(folder) for folder in folders]
    _shared_arrays(datasets)
    for name in _names(config, datasets):
        shards.check_name(name)
        for dataset in datasets:
            dataset.preference(name)
            if targets.probabilities_path(dataset, name).exists():
                targets.read_probabilities(dataset, name)
    if _is_complete(workdir):
        # The same command again: `run` will say that it is complete, which holds for these sources
        # alone.
        _refuse_changed(PairsDataset.open(workdir), datasets, _names(config, datasets))
    else:
        writer.check_folder(workdir)


def run(config_tree: ConfigDict, workdir: Path) -> None:
    """Writes the joined dataset into `workdir`, the pairs of the first dataset first."""
    config = read_section(JoinDatasetsConfig, config_tree)
    with run_folder.opened(workdir, config_tree, IDENTITY):
        if _is_complete(workdir):
            # Left by a writer that was killed after its last file.
            shutil.rmtree(workdir / layout.STAGING, ignore_errors=True)
            print(f"{workdir} is complete: {PairsDataset.open(workdir).num_pairs:,} pairs")
            return
        datasets = [PairsDataset.open(folder) for folder in checks.listed(config.dataset_dirs)]
        arrays = _shared_arrays(datasets)
        names = _names(config, datasets)
        num_pairs = sum(dataset.num_pairs for dataset in datasets)
        with writer.PairsWriter(workdir, num_pairs) as joined:
            for name in arrays:
                parts = [dataset.array(name) for dataset in datasets]
                # `layout` allows more than one dtype for some arrays.
                dtype = np.result_type(*parts)
                # The longer where statuses of older engines lack the last number, which is 0 for
                # them.
                shape = max(part.shape[2:] for part in parts)
                _fill(joined.create(name, shape, dtype), parts)
            _number_datasets(joined.create("info/dataset", (), np.int64), datasets)
            for name in names:
                _add_labels(joined, datasets, name)
            meta: dict[str, object] = {
                "origin": "motif_jax join_datasets",
                "sources": _sources(datasets, names),
            }
            if "info/player" in arrays and _PLAYERS in datasets[0].meta:
                meta[_PLAYERS] = datasets[0].meta[_PLAYERS]
            joined.commit(meta)
        _say_what_was_left_out(datasets, arrays, names)
        print(
            f"{workdir}: {num_pairs:,} pairs of {len(datasets)} datasets; labels: {', '.join(names) or 'none'}"
        )


def _is_complete(workdir: Path) -> bool:
    return (workdir / layout.META).exists()


def _refuse_changed(
    joined: PairsDataset, datasets: Sequence[PairsDataset], names: Sequence[str]
) -> None:
    """Raises UserError where the datasets, or their labels, are others than when they were
    joined.
    """
    remedy = "join into another --workdir"
    sources = joined.meta.get("sources", [])
    if len(sources) != len(datasets):
        raise UserError(f"{joined.folder} holds a dataset that was not joined here: {remedy}")
    for dataset, source in zip(datasets, sources, strict=True):
        if source["content_hash"] != dataset.content_hash():
            raise UserError(
                f"{joined.folder} was made when {dataset.folder} had other pairs: {remedy}"
            )
    for name in names:
        if not _has_labels(joined, datasets, name):
            raise UserError(
                f"{joined.folder} was made before the labels {name} were what they are now: {remedy}"
            )


def _has_labels(joined: PairsDataset, datasets: Sequence[PairsDataset], name: str) -> bool:
    """Whether a joined dataset has the labels of its datasets as they are now, and their
    probabilities where all of them have some.
    """
    if name not in joined.preference_names():
        return False
    if not np.array_equal(joined.preference(name), _labels(datasets, name)):
        return False
    if not _all_soft(datasets, name):
        return not _all_soft([joined], name)
    if not _all_soft([joined], name):
        return False
    stored = targets.read_probabilities(joined, name)
    return np.array_equal(stored, _probabilities(datasets, name), equal_nan=True)


def _array_names(dataset: PairsDataset) -> list[str]:
    return [*(f"data/{name}" for name in dataset.data), *(f"info/{name}" for name in dataset.info)]


def _shared_arrays(datasets: Sequence[PairsDataset]) -> list[str]:
    """The arrays that all datasets have. Raises UserError: steps of an array, or sub-sequences, are
    of different shapes.
    """
    first = datasets[0]
    for dataset in datasets[1:]:
        if dataset.length != first.length:
            raise UserError(
                f"config.dataset_dirs: {first.folder} has sub-sequences of {first.length} steps, {dataset.folder} of {dataset.length}"
            )
    shared = [
        name
        for name in _array_names(first)
        if all(name in _array_names(other) for other in datasets[1:])
    ]
    for name in shared:
        for dataset in datasets[1:]:
            expected = first.array(name).shape[2:]
            shape = dataset.array(name).shape[2:]
            # Of 26 numbers or 27, as `layout` allows.
            is_status = name == "data/blstats"
            if shape != expected and not is_status:
                raise UserError(
                    f"config.dataset_dirs: {name} has the shape {list(expected)} in {first.folder}, {list(shape)} in {dataset.folder}"
                )
    # Of an earlier join: pairs are numbered by the datasets that are joined now.
    left_out = {"info/dataset"}
    # Its numbers stand for the players of a dataset's own list.
    if any(dataset.meta.get(_PLAYERS) != first.meta.get(_PLAYERS) for dataset in datasets):
        left_out.add("info/player")
    return [name for name in shared if name not in left_out]


def _names(config: JoinDatasetsConfig, datasets: Sequence[PairsDataset]) -> list[str]:
    """The label files to join: those of `config.names`, else all that every dataset has."""
    shared = [
        name
        for name in datasets[0].preference_names()
        if all(name in dataset.preference_names() for dataset in datasets[1:])
    ]
    names = checks.listed(config.names)
    for name in names:
        allowed = f"label files of all datasets: {', '.join(shared) or 'none'}"
        checks.require_key(config, "names", name in shared, allowed)
    names = names or [name for name in shared if shards.is_name(name)]
    for name in names:
        _refuse_other_annotators(datasets, name)
    return names


def _refuse_other_annotators(datasets: Sequence[PairsDataset], name: str) -> None:
    """Raises UserError where shards say that the labels `name` of two datasets come from different
    annotators, prompts or goals.
    """
    annotators = _annotators(datasets, name)
    folders = list(annotators)
    for folder in folders[1:]:
        first = annotators[folders[0]]
        # The keys alone: a value may be a whole prompt.
        differing = [
            line.partition(":")[0] for line in differences(first, annotators[folder], first)
        ]
        if differing:
            raise UserError(
                f"config.names: the labels {name} of {folders[0]} and {folder} come from annotators that differ in "
                f"{', '.join(differing)}: name only those to join, or annotate the joined dataset"
            )


def _annotators(datasets: Sequence[PairsDataset], name: str) -> dict[str, dict[str, object]]:
    """Folder -> what made its labels `name`, of those datasets that have a manifest."""
    annotators: dict[str, dict[str, object]] = {}
    for dataset in datasets:
        paths = shards.Annotation(dataset.folder, name).manifests().values()
        manifest = next((shards.read_manifest(path) for path in paths), None)
        if manifest is not None:
            # The content of the dataset is part of an annotator's identity where it reads numbers.
            content = manifest.get("dataset", {}).get("content_hash")
            identity = {
                key: value for key, value in manifest["annotator"].items() if value != content
            }
            questions = manifest.get("questions", {})
            # Count and digest of the questions follow from the dataset, and so differ in any case.
            wording = {key: questions[key] for key in ("orders", "captions") if key in questions}
            annotators[str(dataset.folder)] = {
                "annotator": identity,
                "questions": wording,
            }
    return annotators


def _fill(joined: np.ndarray, parts: Sequence[np.ndarray]) -> None:
    """Writes arrays one after the other; where their steps have fewer numbers than those of
    `joined`, the last ones stay 0.
    """
    start = 0
    for part in parts:
        within = tuple(slice(length) for length in part.shape[1:])
        joined[(slice(start, start + len(part)), *within)] = part
        start += len(part)


def _number_datasets(joined: np.ndarray, datasets: Sequence[PairsDataset]) -> None:
    """Says of each pair from which dataset it is, counted from 0."""
    start = 0
    for number, dataset in enumerate(datasets):
        joined[start : start + dataset.num_pairs] = number
        start += dataset.num_pairs


def _add_labels(joined: writer.PairsWriter, datasets: Sequence[PairsDataset], name: str) -> None:
    """Joins the labels of an annotation, and its probabilities where all datasets have them."""
    joined.add(f"preference/{name}", _labels(datasets, name))
    if _all_soft(datasets, name):
        joined.add(f"annotations/{name}/probabilities", _probabilities(datasets, name))


def _labels(datasets: Sequence[PairsDataset], name: str) -> np.ndarray:
    """The labels int8 [pairs] of an annotation, those of the first dataset first."""
    return np.concatenate([dataset.preference(name) for dataset in datasets])


def _probabilities(datasets: Sequence[PairsDataset], name: str) -> np.ndarray:
    """The probabilities float32 [pairs, 3] of an annotation that all datasets have."""
    return np.concatenate([targets.read_probabilities(dataset, name) for dataset in datasets])


def _sources(datasets: Sequence[PairsDataset], names: Sequence[str]) -> list[dict[str, object]]:
    """Folder, content and size of each dataset, and what made its labels, for dataset.json."""
    annotators = {name: _annotators(datasets, name) for name in names}
    sources: list[dict[str, object]] = []
    for dataset in datasets:
        folder = str(dataset.folder)
        labels = {
            name: of_folder[folder] for name, of_folder in annotators.items() if folder in of_folder
        }
        sources.append(
            {
                "folder": folder,
                "content_hash": dataset.content_hash(),
                "num_pairs": dataset.num_pairs,
                "labels": labels,
            }
        )
    return sources


def _say_what_was_left_out(
    datasets: Sequence[PairsDataset], arrays: Sequence[str], names: Sequence[str]
) -> None:
    for dataset in datasets:
        arrays_left_out = [name for name in _array_names(dataset) if name not in arrays]
        names_left_out = [name for name in dataset.preference_names() if name not in names]
        soft_left_out = [
            f"the probabilities of {name}"
            for name in names
            if targets.probabilities_path(dataset, name).exists() and not _all_soft(datasets, name)
        ]
        left_out = [*arrays_left_out, *names_left_out, *soft_left_out]
        if left_out:
            print(f"left out of {dataset.folder}: {', '.join(left_out)}")


def _all_soft(datasets: Sequence[PairsDataset], name: str) -> bool:
    return all(targets.probabilities_path(dataset, name).exists() for dataset in datasets)
