"""Combines several annotations of a dataset into one, and prints how much they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.motif.annotation import ensembles, shards
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.config import MergeAnnotationsConfig
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.schema import read_section


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError unless the label files exist and fit the dataset, and the new name is
    free.
    """
    run_folder.check_identity(workdir, config_tree)
    config = read_section(MergeAnnotationsConfig, config_tree)
    checks.existing_folder(config, "dataset_dir")
    # Labels alone are read. `open` takes the number of pairs from the messages.
    dataset = PairsDataset.open(config.dataset_dir, need=())
    names = _names(config, dataset)
    is_distinct = len(set(names)) == len(names)
    checks.require_key(
        config, "names", is_distinct, "distinct: one that is named twice counts twice"
    )
    label_files = dataset.preference_names()
    for name in names:
        allowed = f"label files of the dataset: {', '.join(label_files) or 'none'}"
        checks.require_key(config, "names", name in label_files, allowed)
        # Read for its checks: shape, dtype and labels.
        dataset.preference(name)
    if config.name:
        shards.check_name(config.name)
        checks.require_key(config, "name", config.name not in names, "none of config.names")
        checks.require_key(
            config, "names", len(names) > 1, "at least two label files, separated by commas"
        )
        if not config.restart:
            sources = _sources(config.method, _votes(dataset, names))
            ensembles.check_name_is_free(dataset.folder, config.name, sources)


def run(config_tree: ConfigDict, workdir: Path) -> None:
    """Prints and writes the agreement; with `config.name` also combines the labels."""
    config = read_section(MergeAnnotationsConfig, config_tree)
    dataset = PairsDataset.open(config.dataset_dir, need=())
    with run_folder.opened(workdir, config_tree):
        names = _names(config, dataset)
        votes = _votes(dataset, names)
        tables = ensembles.tables(votes)
        print(tables, flush=True)
        atomic_write_text(workdir / "agreement.txt", tables + "\n")
        summary = {"names": names, "agreement": ensembles.agreement(votes)}
        if config.name:
            merged = ensembles.combine(votes, config.method)
            sources = _sources(config.method, votes)
            path = ensembles.write_ensemble(
                dataset.folder, config.name, merged, sources, config.restart
            )

            label_counts = counts(merged.labels)
            totals = ", ".join(f"{count:,} {label}" for label, count in label_counts.items())
            print(f"\n{path}: {config.method} of {len(names)} annotations; {totals}", flush=True)
            summary["merged"] = {"name": config.name, "method": config.method, **label_counts}
        atomic_write_json(workdir / "summary.json", summary)


def _votes(dataset: PairsDataset, names: list[str]) -> list[ensembles.Votes]:
    return [ensembles.read_votes(dataset.folder, name, dataset.preference(name)) for name in names]


def _sources(method: str, votes: list[ensembles.Votes]) -> dict[str, Any]:
    """What merged labels are made from: labels by their content, so that the same command may be
    given again, but not after one of them has changed.
    """
    source_digests = {}
    for vote in votes:
        content = vote.labels.tobytes() + vote.probabilities.tobytes()
        source_digests[vote.name] = digests.of_bytes(content)
    return {"method": method, "labels": source_digests}


def _names(config: MergeAnnotationsConfig, dataset: PairsDataset) -> list[str]:
    """The label files to compare: those of `config.names`, else all of the dataset but the one that
    is written.
    """
    names = checks.listed(config.names)
    if not names:
        names = [name for name in dataset.preference_names() if name != config.name]
    if not names:
        raise UserError(
            f"config.dataset_dir={config.dataset_dir}: has no label files in preference/"
        )
    return names
