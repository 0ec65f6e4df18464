"""Imports GLAM's `.checkpoint` files of trained and cloned agents.

The files are dictionaries of tensors. The language model's tensors have the names of transformers;
files of trainings add the prefix `module._LLM_model.` and lamorel's heads `value_head_op` and
`action_heads_op`, each of three linear layers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.core.errors import UserError, printable
from motif_jax.core.files import atomic_write_json
from motif_jax.core.run_folder import as_plain, describe
from motif_jax.glam.agent import ACTIONS, LanguageAgent
from motif_jax.lm import weights
from motif_jax.published import import_motif
from motif_jax.published.config import ImportLanguageAgentConfig
from motif_jax.published.import_motif import TorchCheckpoint

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


def write_agent(
    config: ImportLanguageAgentConfig, workdir: Path, begin: Callable[[], None]
) -> None:
    """Writes a run of train_language_agent with one checkpoint."""
    network = import_motif.network_of(config.agent)
    imported = language_agent(import_motif.read(config.path), network, config.seed)
    begin()
    for head in imported.fresh:
        print(f"note: the file has no head {head}: it keeps its initial values")
    if imported.left_over:
        print(printable(f"not used: {', '.join(imported.left_over)}"))
    about = {"file": str(config.file), "names": imported.names, "not_used": imported.left_over}
    notes = [f"fresh: {head}" for head in imported.fresh]
    atomic_write_json(workdir / import_motif.MAPPING, {**about, "notes": notes})
    describe(workdir, as_plain(config.agent))
    import_motif.write_checkpoint(workdir, 0, {"params": imported.params})
    print(f"written to {workdir}: {len(imported.names)} tensors")


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

    def head(operation: str) -> dict[str, dict[str, np.ndarray]]:
        layers: dict[str, dict[str, np.ndarray]] = {layer: {} for layer in _LAYERS.values()}
        for number, layer in _LAYERS.items():
            # torch's name of an array, and flax's.
            for torch_name, flax_name in (("weight", "kernel"), ("bias", "bias")):
                # As in "_module_functions.value.value_head_op.0.weight".
                ending = f"{operation}.{number}.{torch_name}"
                file_name, tensor = next(
                    entry for name, entry in entries.items() if name.endswith(ending)
                )
                # PyTorch's kernels are [outputs, inputs].
                layers[layer][flax_name] = np.asarray(tensor.T, np.float32)
                used[f"{operation}.{layer}.{flax_name}"] = file_name
        return layers

    model = weights.collect(find, checkpoint.path, network.model.config)
    heads = jax.device_get(network.heads.init(jax.random.key(seed)))
    new = [name for name in heads if not any(f"{_HEADS[name]}." in short for short in entries)]
    # Fresh ones would act at random.
    if ACTIONS in new:
        raise UserError(
            f"{checkpoint.path} has no action heads: import it with --config.agent.network.policy=score"
        )
    learned = {name: head(_HEADS[name]) for name in heads if name not in new}
    expected = {name: jax.tree.map(np.shape, heads[name]) for name in learned}
    if jax.tree.map(np.shape, learned) != expected:
        raise UserError(
            f"{checkpoint.path}: its heads do not fit config.agent.network.head_widths (published: (1024, 1024)), its model or its actions"
        )
    left_over = [name for name, _ in checkpoint.tensors if name not in used.values()]
    return ImportedAgent({"model": model, "heads": heads | learned}, used, left_over, new)
