"""Combines several annotations of a dataset into one, and prints how much they agree."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.motif.annotation import ensembles, shards
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.pairs.dataset import PairsDataset


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    checks.existing_folder(config, "dataset_dir")
    dataset = PairsDataset.open(config.dataset_dir, need=())
    names = _names(config, dataset)
    there = dataset.preference_names()
    for name in names:
        allowed = f"label files of the dataset: {', '.join(there) or 'none'}"
        checks.require_key(config, "names", name in there, allowed)
        dataset.preference(name)
    if config.name:
        shards.check_name(config.name)
        checks.require_key(config, "name", config.name not in names, "none of config.names")
        checks.require_key(config, "names", len(names) > 1, "at least two label files, separated by commas")


def run(config: ConfigDict, workdir: Path) -> None:
    dataset = PairsDataset.open(config.dataset_dir, need=())
    with run_folder.opened(workdir, config):
        names = _names(config, dataset)
        votes = [ensembles.read_votes(dataset.folder, name, dataset.preference(name)) for name in names]
        tables = ensembles.tables(votes)
        print(tables, flush=True)
        atomic_write_text(workdir / "agreement.txt", tables + "\n")
        summary = {"names": names, "agreement": ensembles.agreement(votes)}
        if config.name:
            merged = ensembles.combine(votes, config.method)
            read = {vote.name: vote.labels.tobytes() + vote.probabilities.tobytes() for vote in votes}
            labels = {name: digests.of_bytes(content) for name, content in read.items()}
            sources = {"method": config.method, "labels": labels}
            path = ensembles.write_ensemble(dataset.folder, config.name, merged, sources, config.restart)
            shown = ", ".join(f"{count:,} {label}" for label, count in counts(merged.labels).items())
            print(f"\n{path}: {config.method} of {len(names)} annotations; {shown}", flush=True)
            summary["merged"] = {"name": config.name, "method": config.method, **counts(merged.labels)}
        atomic_write_json(workdir / "summary.json", summary)


def _names(config: ConfigDict, dataset: PairsDataset) -> list[str]:
    others = [name for name in dataset.preference_names() if name != config.name]
    names = checks.listed(config.names) or others
    if not names:
        raise UserError(f"config.dataset_dir={config.dataset_dir}: has no label files in preference/")
    return names
