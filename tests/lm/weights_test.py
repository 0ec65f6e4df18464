"""Parameters written and read again, in one file or in shards; what does not fit is refused in one
line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from motif_jax.core.errors import UserError
from motif_jax.lm import config, linear, weights
from motif_jax.lm.model import LanguageModel
from tests.lm import models, recipes
from tests.lm.models import DECODERS, NAMES
from tests.sets import extra


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shard_bytes", [weights.SHARD_BYTES, 4000])
def test_tensors_are_saved_as_read(
    tmp_path: Path, name: str, shard_bytes: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(weights, "SHARD_BYTES", shard_bytes)
    folder = models.write(tmp_path / "theirs", name)
    model, params = models.load(folder)
    weights.save(tmp_path / "ours", params, model.config)
    files = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert (len(files) > 1) == (shard_bytes == 4000)
    (tmp_path / "any").touch()
    assert {file.stat().st_mode for file in files} == {(tmp_path / "any").stat().st_mode}
    tensors = {key: value for file in files for key, value in load_file(file).items()}
    chex.assert_trees_all_equal(tensors, load_file(folder / weights.SINGLE))


@pytest.mark.parametrize("name", [name if name in ("t5",) else extra(name) for name in DECODERS])
@pytest.mark.parametrize("loop", [False, extra(True)])
def test_kernels_by_output_give_the_same_states(tmp_path: Path, name: str, loop: bool) -> None:
    folder = models.write(tmp_path, name)
    model, params = models.load(folder)
    settings = model.config
    turned_params = weights.load(folder, settings, output_major=True)
    turned_model = LanguageModel(settings, loop=loop, output_major=True)
    tokens = jnp.asarray(recipes.tokens(), jnp.int32)

    def logits(model: LanguageModel, params: Any) -> jax.Array:
        states, prompt = model.prefill(params, tokens, tokens > 0)
        if settings.encoder_layers:
            states, _ = model.extend(params, prompt, tokens[:, None], tokens[:, None] > 0)
        return model.logits(params, states.after)

    chex.assert_trees_all_close(
        logits(turned_model, turned_params), logits(model, params), rtol=1e-5, atol=1e-5
    )
    kernels = linear.kernels(params)
    assert kernels
    for path, kernel in linear.kernels(turned_params).items():
        np.testing.assert_array_equal(kernel, kernels[path].T)


def test_kernels_by_output_are_not_written(tmp_path: Path) -> None:
    folder = models.write(tmp_path / "theirs", "llama")
    settings = weights.read_config(folder)
    params = weights.load(folder, settings, output_major=True)
    with pytest.raises(ValueError, match=r"key/kernel is \(8, 16\), and not"):
        weights.save(tmp_path / "ours", params, settings)
    assert not list((tmp_path / "ours").glob("*"))


@pytest.mark.extra
def test_fresh_kernels_by_output_are_the_same_numbers() -> None:
    settings = config.parse(recipes.CONFIGS["llama"])
    key = jax.random.key(3)
    kernels = linear.kernels(LanguageModel(settings).init(key))
    turned = linear.kernels(LanguageModel(settings, output_major=True).init(key))
    chex.assert_trees_all_equal(turned, {path: kernel.T for path, kernel in kernels.items()})


def test_names_without_the_models_prefix_are_found(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "gpt2")
    tensors = load_file(folder / weights.SINGLE)
    short = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    save_file(short, folder / weights.SINGLE)
    models.load(folder)


def test_missing_or_unfitting_tensors_and_shards_are_named(tmp_path: Path) -> None:
    folder = models.write(tmp_path / "model", "llama")
    tensors = load_file(folder / weights.SINGLE)
    wider = {**models.recipes.CONFIGS["llama"], "intermediate_size": 40}
    (folder / config.FILE).write_text(json.dumps(wider))
    misfit = "model.layers.0.mlp.gate_proj.weight: float[24, 16] saved, float[40, 16] wanted"
    for read in (weights.load, weights.check):
        with pytest.raises(UserError) as raised:
            read(folder, weights.read_config(folder))
        line = str(raised.value)
        assert line.startswith(f"{folder} does not fit the model's config: {misfit}; ")
        assert line.endswith(" and 1 more")
    (folder / config.FILE).write_text(json.dumps(models.recipes.CONFIGS["llama"]))
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, folder / weights.SINGLE)
    with pytest.raises(UserError, match=r"model\.layers\.1\.mlp\.down_proj\.weight: absent saved"):
        models.load(folder)
    (folder / weights.INDEX).write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    (tmp_path / "folder.safetensors").mkdir()
    digested = (folder, False), (tmp_path, False), (tmp_path, True)
    before = [weights.digest(path, below=below) for path, below in digested]
    save_file({}, folder / weights.SINGLE)
    after = [weights.digest(path, below=below) for path, below in digested]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, False]
