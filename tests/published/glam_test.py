"""GLAM's own files: checkpoints of trained and cloned agents, and distrib.csv."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.published import import_motif, imports, results
from motif_jax.rl import agent_checkpoints
from tests import torch_files
from tests.lm import talkers
from tests.reward_fixtures import load_config, run_config

HEADS = {"0": (16, 8), "2": (16, 16), "4": (1, 16)}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return talkers.write(tmp_path_factory.mktemp("model"))


def config(model: Path, file: Path):
    network = {
        "agent.network.model": str(model),
        "agent.network.prompt_tokens": 160,
        "agent.network.head_widths": (16, 16),
    }
    values = {"file": str(file), "agent.environment.name": "BabyAI-GoToLocal-v0", **network}
    return load_config("import", "glam", values)


def write_checkpoint(
    path: Path, model: Path, heads: bool = True, drop: str = ""
) -> dict[str, np.ndarray]:
    """Writes the file of a training, or without heads of a cloning; returns its tensors by their
    names there.
    """
    rng = np.random.default_rng(0)
    prefix = "module._LLM_model." if heads else ""
    weights = load_file(model / "model.safetensors")
    tensors = {f"{prefix}{name}": tensor + 1 for name, tensor in weights.items()}
    if heads:
        for number, shape in HEADS.items():
            name = f"module._module_functions.value.value_head_op.{number}"
            tensors[f"{name}.weight"] = rng.normal(size=shape).astype(np.float32)
            tensors[f"{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    if drop:
        tensors = {name: tensor for name, tensor in tensors.items() if drop not in name}
    torch_files.write(path, tensors)
    return tensors


@pytest.mark.torch
@pytest.mark.slow
def test_a_cloned_model_becomes_an_agent_with_fresh_heads(model, tmp_path):
    tensors = write_checkpoint(tmp_path / "model.checkpoint", model, heads=False)
    import_config = config(model, tmp_path / "model.checkpoint")
    import_config.seed = 3
    network = import_motif.network_of(import_config.agent)

    folder = run_config(import_config, tmp_path / "run")

    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        params = agent_checkpoints.restore_params(checkpoints, None, network)
    np.testing.assert_array_equal(params["model"]["embedding"], tensors["shared.weight"])
    params = jax.tree.map(np.asarray, params)
    fresh = network.heads.init(jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, params["heads"], jax.device_get(fresh))
    prompt = jax.numpy.array([[5, 6, 7]])
    logits, value = network.logits_and_values(params, prompt)
    assert np.isfinite(logits).all()
    assert value.shape == (1,)


@pytest.mark.torch
@pytest.mark.slow
def test_a_file_without_a_tensor_is_refused(model, tmp_path):
    file = tmp_path / "model.checkpoint"
    write_checkpoint(file, model, drop="encoder.final_layer_norm")

    with pytest.raises(UserError, match=r"encoder.final_layer_norm.weight: absent saved"):
        imports.run(config(model, file), tmp_path / "run")

    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("policy", "actions", "has no action heads"),
        ("head_widths", (16, 16, 16), r"heads do not fit config\.agent\.network\.head_widths"),
        ("head_widths", (8, 8), r"heads do not fit config\.agent\.network\.head_widths"),
    ],
)
def test_a_file_that_does_not_fit_the_config_is_refused(model, tmp_path, key, value, line):
    file = tmp_path / "model.checkpoint"
    write_checkpoint(file, model)
    import_config = config(model, file)
    import_config.agent.network[key] = value

    with pytest.raises(UserError, match=line):
        imports.run(import_config, tmp_path / "run")

    assert not (tmp_path / "run" / "checkpoints").exists()


def test_distributions_are_read_as_rows_of_prompts_and_actions(tmp_path):
    path = tmp_path / "distrib.csv"
    path.write_text("1,2,3,4\n5,6,7,8\n")

    assert results.read_distributions(path, 2).tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


@pytest.mark.parametrize("scores", [[[0.25, 0.75]], [[1.0, 1.0 + np.log(3)]]])
def test_scores_become_probabilities_unless_they_are(scores):
    np.testing.assert_allclose(results.probabilities(np.array(scores)), [[0.25, 0.75]])


def test_the_name_of_a_run_says_its_actions():
    assert len(results.actions_of("RUN")) == 6
    assert results.actions_of("RUN_nbr_actions_10_x")[6:] == (
        "sleep",
        "do nothing",
        "think",
        "action 10",
    )
