"""Converts parts of published models from the names of transformers and PyTorch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.lm import config as configs
from motif_jax.lm import weights
from motif_jax.lm.config import ModelConfig
from motif_jax.published import torch_file

# Width of an attention head in all published sizes of GPT-2 and RoBERTa.
_HEAD_WIDTH = 64


@contextlib.contextmanager
def reading(path: str | Path, origin: str) -> Iterator[dict[str, np.ndarray]]:
    """The tensors of a checkpoint by name; errors in the block become "PATH is not a checkpoint of
    the published ORIGIN".
    """
    named = torch_file.tensors(torch_file.read_checkpoint(path))
    # PyTorch's wrapper for several devices puts "module." before every name.
    tensors = {name.removeprefix("module."): array for name, array in named}
    try:
        yield tensors
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{path} is not a checkpoint of the published {origin} ({type(error).__name__}: {error})"
        ) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def part(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    """The tensors whose names begin with `start`, by the rest of their names."""
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }


def linear(tensors: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A linear layer, float32; PyTorch's kernels are [out, in]."""
    kernel = np.asarray(tensors[f"{name}.weight"], np.float32)
    bias = np.asarray(tensors[f"{name}.bias"], np.float32)
    return {"kernel": np.ascontiguousarray(kernel.T), "bias": bias}


def layers(names: Iterable[str], pattern: str) -> int:
    """The number of layers; the group of `pattern` matches a layer's number."""
    matches = [re.match(pattern, name) for name in names]
    return 1 + max(int(match[1]) for match in matches if match)


def heads_of(width: int, heads: int) -> int:
    """The number of attention heads: `heads`, or width / 64 for 0. Raises UserError: the width is
    not a multiple of it.
    """
    heads = heads or width // _HEAD_WIDTH
    if not heads or width % heads:
        raise UserError(f"a width of {width} does not divide into {heads} heads: give config.heads")
    return heads


def model(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], subject: str
) -> tuple[ModelConfig, Any]:
    """A model's config and float32 parameters from transformers' config and names of tensors;
    UserErrors name `subject`.
    """
    settings = configs.parse(config, subject)
    return settings, weights.collect(tensors.get, subject, settings)
