"""Whole folders written and read again: config, weights, heads; what was there before does not shine through."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language import config, config_file, folder, weights
from motif_jax.language.heads import HeadConfig, Heads
from motif_jax.support.errors import UserError
from tests.language import models
from tests.language.models import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    settings = config.parse(models.recipes.CONFIGS[name])
    config_file.write(tmp_path, settings)
    assert config.read(tmp_path) == settings
    rarer = dataclasses.replace(settings, end_ids=(3, 4), start_id=5, pad_id=6, norm_epsilon=1e-3)
    config_file.write(tmp_path, rarer)
    assert config.read(tmp_path) == rarer


def test_what_a_config_cannot_say_is_refused(tmp_path: Path) -> None:
    settings = dataclasses.replace(config.parse(models.recipes.CONFIGS["gpt2"]), head_width=7)
    with pytest.raises(UserError, match="head_width=7: it would be read as 4"):
        folder.write(tmp_path / "new", settings, {})
    assert not (tmp_path / "new").exists()


def test_a_folder_keeps_model_and_heads_and_nothing_of_what_was_in_it(tmp_path: Path) -> None:
    theirs = models.write(tmp_path / "theirs", "llama")
    (theirs / "tokenizer.json").write_text("{}")
    settings, params, none, _ = folder.read(theirs)
    assert not none.configs
    heads = Heads(settings.width, {"value": HeadConfig(1, (4,)), "q": HeadConfig(settings.vocab_size)})
    head_params = heads.init(jax.random.key(0))
    ours = tmp_path / "ours"
    folder.write(ours, settings, params, heads, head_params, tokenizer=theirs, shard_bytes=4000)
    assert (ours / "tokenizer.json").read_text() == "{}"
    found = folder.read(ours)
    assert found.config == settings
    assert dict(found.heads.configs) == dict(heads.configs)
    same = jax.tree.map(np.array_equal, (found.params, found.head_params), (params, head_params))
    assert jax.tree.all(same)

    doubled = jax.tree.map(lambda leaf: 2 * leaf, params)
    folder.write(ours, settings, doubled)
    assert [path.name for path in ours.glob("model*")] == [weights.SINGLE]
    assert jax.tree.all(jax.tree.map(np.array_equal, folder.read(ours).params, doubled))


def test_a_folder_that_is_written_over_and_not_to_the_end_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = models.write(tmp_path / "ours", "gpt2")
    settings, params, *_ = folder.read(ours)

    def full(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(weights, "save", full)
    with pytest.raises(OSError, match="no room"):
        folder.write(ours, settings, params)
    with pytest.raises(UserError, match=config.FILE):
        folder.read(ours)


def test_bfloat16_is_kept(tmp_path: Path) -> None:
    settings, params, *_ = folder.read(models.write(tmp_path / "theirs", "gpt2"), jnp.bfloat16)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(params))
    folder.write(tmp_path / "ours", settings, params)
    again = weights.load(tmp_path / "ours", settings, jnp.bfloat16)
    assert jax.tree.all(jax.tree.map(np.array_equal, again, params))
