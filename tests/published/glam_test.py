"""GLAM's own files: checkpoints of trained and cloned agents, and distrib.csv."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.published import glam_probes, import_torch
from motif_jax.rl import agent_checkpoints
from tests import torch_files
from tests.lm import talkers
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import load_config, run_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")
HEADS = {"0": (16, 8), "2": (16, 16), "4": (1, 16)}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return talkers.write(tmp_path_factory.mktemp("model"))


def config(model: Path, file: Path):
    network = {"agent.network.model": str(model), "agent.network.prompt_tokens": 160}
    given = {"file": str(file), "agent.environment.name": "BabyAI-GoToLocal-v0", **network}
    return load_config("import_torch", "glam", given | {"agent.network.head_widths": (16, 16)})


def checkpoint(path: Path, model: Path, heads: bool = True, drop: str = "") -> dict[str, np.ndarray]:
    """A file of a training, or without heads of a cloning; its tensors by their names there."""
    rng = np.random.default_rng(0)
    prefix = "module._LLM_model." if heads else ""
    found = {f"{prefix}{name}": tensor + 1 for name, tensor in load_file(model / "model.safetensors").items()}
    if heads:
        for number, shape in HEADS.items():
            name = f"module._module_functions.value.value_head_op.{number}"
            found[f"{name}.weight"] = rng.normal(size=shape).astype(np.float32)
            found[f"{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    found = {name: tensor for name, tensor in found.items() if not drop or drop not in name}
    torch_files.write(path, {name: torch_files.tensor(tensor) for name, tensor in found.items()})
    return found


@pytest.mark.slow
def test_a_cloned_model_becomes_an_agent_with_fresh_heads(model, tmp_path):
    written = checkpoint(tmp_path / "model.checkpoint", model, heads=False)
    chosen = config(model, tmp_path / "model.checkpoint")
    network = import_torch.network_of(chosen.agent)
    with Checkpoints(run_config(chosen, tmp_path / "run") / "checkpoints", read_only=True) as checkpoints:
        params = agent_checkpoints.restore_params(checkpoints, None, network)
    np.testing.assert_array_equal(params["model"]["embedding"], written["shared.weight"])
    logits, value = network.rows(jax.tree.map(np.asarray, params), jax.numpy.array([[5, 6, 7]]))
    assert (np.isfinite(logits).all(), value.shape) == (True, (1,))


@pytest.mark.slow
def test_what_does_not_fit_is_named(model, tmp_path):
    file = tmp_path / "model.checkpoint"
    checkpoint(file, model, drop="encoder.final_layer_norm")
    with pytest.raises(UserError, match=r"tensor encoder.final_layer_norm.weight is missing"):
        import_torch.run(config(model, file), tmp_path / "run")
    checkpoint(file, model)
    said = r"value_head_op.0.weight is \[16, 8\], which does not fit"
    for key, value, told in (("policy", "actions", "has no action heads"), ("head_widths", (8, 8), said)):
        other = config(model, file)
        other.agent.network[key] = value
        with pytest.raises(UserError, match=told):
            import_torch.run(other, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_distributions_are_read(tmp_path, record):
    path = tmp_path / "distrib.csv"
    path.write_text("1,2,3,4\n5,6,7,8\n")
    assert glam_probes.read_distributions(path, 2).tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    lines = [outcome_text(glam_probes.read_distributions, path, 3, folder=tmp_path)]
    for content in ("1,2\n1\n", "", "a\n"):
        path.write_text(content)
        lines += [outcome_text(glam_probes.read_distributions, path, 1, folder=tmp_path)]
    assert_matches_packed_recording("glam_distributions", {"lines": "\n".join(lines)}, record)
    for given in ([[0.25, 0.75]], [[1.0, 1.0 + np.log(3)]]):
        np.testing.assert_allclose(glam_probes.probabilities(np.array(given)), [[0.25, 0.75]])
    assert len(glam_probes.actions_of("RUN")) == 6
    assert glam_probes.actions_of("RUN_nbr_actions_10_x")[6:] == ("sleep", "do nothing", "think", "action 10")
