"""Imports GLAM's `.checkpoint` files of trained and cloned agents.

The files are dictionaries of tensors. The language model's tensors have the names of transformers;
files of trainings add the prefix `module._LLM_model.` and lamorel's heads `value_head_op` and
`action_heads_op`, each of three linear layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.run_folder import as_plain, describe
from motif_jax.glam.agent import ACTIONS, LanguageAgent
from motif_jax.lm import weights
from motif_jax.published.motif_checkpoint import TorchCheckpoint, write_checkpoint

_WRAPPER = "module."
_MODEL = "_LLM_model."
_HEADS = {"value": "value_head_op", ACTIONS: "action_heads_op"}
_LAYERS = {"0": "hidden_0", "2": "hidden_1", "4": "output"}


class ImportedAgent(NamedTuple):
    """An agent's parameters, the tensor that each comes from, tensors that are left over, and heads
    that are new.
    """

    params: Any
    names: dict[str, str]
    left_over: list[str]
    fresh: list[str]


def language_agent(checkpoint: TorchCheckpoint, network: LanguageAgent, seed: int) -> ImportedAgent:
    """Parameters of `network` from a checkpoint; one of cloning has no value head, which is drawn
    from `seed`. Raises UserError: a tensor does not fit.
    """
    # Name without prefixes -> (name in the file, tensor).
    entries = {
        name.removeprefix(_WRAPPER).removeprefix(_MODEL): (name, tensor)
        for name, tensor in checkpoint.tensors
    }
    used: dict[str, str] = {}

    def find(name: str) -> np.ndarray | None:
        # Some files leave out the name of the base model, such as "transformer.".
        for candidate in (name, name.partition(".")[2]):
            if candidate in entries:
                file_name, tensor = entries[candidate]
                used[name] = file_name
                return tensor
        return None

    def find_ending(ending: str) -> tuple[str, np.ndarray]:
        # As in "_module_functions.value.value_head_op.0.weight".
        for short_name, entry in entries.items():
            if short_name.endswith(ending):
                return entry
        raise UserError(f"{checkpoint.path} has no tensor that ends in {ending}")

    def head(operation: str, fresh: Any) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        if set(fresh) != set(_LAYERS.values()):
            raise UserError(
                "config.agent.network.head_widths: must be two, as published: (1024, 1024)"
            )
        for number, layer in _LAYERS.items():
            arrays: dict[str, np.ndarray] = {}
            # torch's name of an array, and flax's.
            for torch_name, flax_name in (("weight", "kernel"), ("bias", "bias")):
                name, tensor = find_ending(f"{operation}.{number}.{torch_name}")
                # PyTorch's kernels are [outputs, inputs].
                if tensor.T.shape != fresh[layer][flax_name].shape:
                    raise UserError(
                        f"{checkpoint.path}: tensor {name} is {list(tensor.shape)}, which does not fit "
                        "config.agent.network.head_widths, its model or its actions"
                    )
                arrays[flax_name] = np.asarray(tensor.T, np.float32)
                used[f"{operation}.{layer}.{flax_name}"] = name
            yield layer, arrays

    model = weights.collect(find, checkpoint.path, network.model.config)
    heads = jax.device_get(network.heads.init(jax.random.key(seed)))
    new = [name for name in heads if not any(f"{_HEADS[name]}." in short for short in entries)]
    if ACTIONS in new:
        raise UserError(
            f"{checkpoint.path} has no action heads: import it with --config.agent.network.policy=score"
        )
    heads = {
        name: heads[name] if name in new else dict(head(_HEADS[name], heads[name]))
        for name in heads
    }
    left_over = [name for name, _ in checkpoint.tensors if name not in used.values()]
    return ImportedAgent({"model": model, "heads": heads}, used, left_over, new)


def write(params: Any, config: Mapping[str, Any], workdir: Path) -> None:
    """Writes a run folder with one checkpoint, which other stages read as an agent."""
    describe(workdir, as_plain(config))
    write_checkpoint(workdir, 0, {"params": params})
