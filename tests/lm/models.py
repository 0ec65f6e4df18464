"""The tiny checkpoints of recipes.py as models of ours, and what transformers made of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from motif_jax.lm import config, weights
from motif_jax.lm.model import LanguageModel
from tests.lm import recipes

TEXT = [
    "go to the red ball",
    "go forward",
    "turn left",
    "turn right",
    "pick up the key",
    "the door is open",
]
REFERENCES = Path(__file__).parent / "references"
NAMES = tuple(recipes.CONFIGS)
DECODERS = tuple(name for name in NAMES if name != "roberta")


@functools.cache
def shapes() -> dict[str, dict[str, list[int]]]:
    """Shapes of each checkpoint's tensors, as transformers has them."""
    return json.loads((REFERENCES / "shapes.json").read_text())


@functools.cache
def references() -> dict[str, np.ndarray]:
    with np.load(REFERENCES / "references.npz") as arrays:
        return dict(arrays)


def reference(name: str, key: str) -> np.ndarray:
    return references()[f"{name}/{key}"]


def write(folder: Path, name: str) -> Path:
    """Writes the checkpoint `name` as transformers would."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(recipes.CONFIGS[name]))
    tensors = {key: recipes.tensor(key, tuple(shape)) for key, shape in shapes()[name].items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def load(folder: Path) -> tuple[LanguageModel, Any]:
    settings = weights.read_config(folder)
    return LanguageModel(settings), weights.load(folder, settings)


def tokenizer(size: int = 60, more: Sequence[str] = ()) -> str:
    """A tokenizer of byte pairs, in the place of a checkpoint's own; `more` are special tokens."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", *more]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    backend.train_from_iterator(TEXT, trainer)
    return backend.to_str()


def parsed(name: str, changes: dict[str, Any]) -> config.ModelConfig:
    """The config of a made-up model with changed values; None leaves a value out. Raises UserError:
    no model has it.
    """
    changed = {**recipes.CONFIGS[name], **changes}
    return config.parse(
        {key: value for key, value in changed.items() if value is not None}, "config.json"
    )
