"""The tiny checkpoints of recipes.py as models of ours, and what transformers made of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.language import weights
from motif_jax.language.model import LanguageModel
from tests.language import recipes

REFERENCES = Path(__file__).parent / "references"
NAMES = tuple(recipes.CONFIGS)
DECODERS = tuple(name for name in NAMES if name != "roberta")


@functools.cache
def shapes() -> dict[str, dict[str, list[int]]]:
    return json.loads((REFERENCES / "shapes.json").read_text())


@functools.cache
def references() -> dict[str, np.ndarray]:
    with np.load(REFERENCES / "references.npz") as arrays:
        return dict(arrays)


def reference(name: str, key: str) -> np.ndarray:
    return references()[f"{name}/{key}"]


def write(folder: Path, name: str) -> Path:
    return recipes.write(folder, name, shapes()[name])


def load(folder: Path) -> tuple[LanguageModel, Any]:
    settings = weights.read_config(folder)
    return LanguageModel(settings), weights.load(folder, settings)
