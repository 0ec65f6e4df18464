"""Small datasets and reward runs for the tests of rewards."""

from __future__ import annotations

import copy
import functools
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from ml_collections import ConfigDict

from motif_jax import schema, stages
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.pairs.writer import write_pairs

REPOSITORY = Path(__file__).parent.parent


def make_dataset(
    folder: Path,
    pairs: int = 300,
    messages: int = 40,
    length: int = 1,
    glyphs: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """Writes a dataset whose label 'test' follows a hidden value of each message; returns those
    values.
    """
    rng = np.random.default_rng(seed)
    table = np.zeros((messages, 256), np.uint8)
    for row in range(1, messages):
        size = rng.integers(5, 60)
        table[row, :size] = rng.integers(32, 127, size)
    ids = rng.choice(messages, (pairs, 2, length), p=rng.dirichlet(np.full(messages, 0.5)))
    value = rng.normal(size=messages)
    data = {
        "message": table[ids],
        "blstats": rng.integers(0, 20, (pairs, 2, length, 27)),
        "rewards": np.zeros((pairs, 2, length), np.float32),
    }
    if glyphs:
        data["glyphs"] = rng.integers(0, 5976, (pairs, 2, length, 21, 79)).astype(np.int16)
    write_pairs(folder, data, {"score": rng.integers(0, 5, (pairs, 2))})
    mean = value[ids].mean(axis=-1)
    labels = np.where(mean[:, 0] == mean[:, 1], 2, mean[:, 1] > mean[:, 0]).astype(np.int8)
    labels[::13] = 3
    write_labels(folder, "test", labels)
    return value


def write_labels(
    folder: Path, name: str, labels: np.ndarray, probabilities: np.ndarray | None = None
) -> None:
    (folder / "preference").mkdir(exist_ok=True)
    np.save(folder / "preference" / f"{name}.npy", labels)
    if probabilities is not None:
        (folder / "annotations" / name).mkdir(parents=True, exist_ok=True)
        np.save(
            folder / "annotations" / name / "probabilities.npy", probabilities.astype(np.float32)
        )


def command(stage: str, workdir: Path, *flags: str, variant: str = "smoke") -> list[str]:
    config = f"configs/{stage}.py" + (f":{variant}" if variant else "")
    return [
        sys.executable,
        "-m",
        "motif_jax.launch",
        f"--config={config}",
        f"--workdir={workdir}",
        *flags,
    ]


def launch(stage: str, workdir: Path, *flags: str, variant: str = "smoke", code: int = 0) -> str:
    """Runs a stage through the real entry point; returns what it printed."""
    done = subprocess.run(
        command(stage, workdir, *flags, variant=variant),
        cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_stage(stage: str, workdir: Path, variant: str = "smoke", **values: object) -> Path:
    """Runs a stage in this process with `values` by dotted key; returns its folder."""
    return run_config(load_config(stage, variant, values), workdir)


def run_config(config: ConfigDict, workdir: Path) -> Path:
    """Runs the stage of `config` in this process; returns its folder."""
    module = stages.module(config.stage)
    module.check(config, workdir)
    assert not module.run(config, workdir)
    return workdir


def environment() -> dict[str, str]:
    """Of a stage on one device."""
    return {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}


@functools.cache
def _config(stage: str, variant: str | None) -> ConfigDict:
    # A study lies elsewhere in the repository.
    file = stage if "/" in stage else f"configs/{stage}"
    return runpy.run_path(str(REPOSITORY / f"{file}.py"))["get_config"](variant)


def load_config(
    stage: str, variant: str | None = "smoke", values: Mapping[str, object] = MappingProxyType({})
) -> ConfigDict:
    """A copy of what configs/STAGE.py gives, or a file elsewhere such as docs/studies/oni, with
    `values` by dotted key: to run the file takes three times as long.
    """
    config = copy.deepcopy(_config(stage, variant))
    config.update_from_flattened_dict(dict(values))
    return config


def annotation_config(values: Mapping[str, object] = MappingProxyType({})) -> AnnotationConfig:
    """The values of configs/annotate.py, with `values` by dotted key."""
    return schema.read_section(AnnotationConfig, load_config("annotate", "", values))


def reward_config(dataset: Path, **overrides: object) -> ConfigDict:
    """The smoke config on one device with one epoch, and `overrides` by dotted name."""
    config = load_config("train_reward")
    config.dataset_dir = str(dataset)
    config.annotator = "test"
    config.num_devices = 1
    config.epochs = 1
    config.update_from_flattened_dict(overrides)
    return config


def train(workdir: Path, config: ConfigDict) -> Path:
    """Trains in this process; returns the run folder."""
    return run_config(config, workdir)
