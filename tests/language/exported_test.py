"""An exported folder is, file by file, what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from motif_jax.language import exported, weights
from tests.language import models
from tests.recorded_outputs import compared, of_folder


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_an_exported_folder_stays_what_it_was(
    tmp_path: Path, name: str, record: bool, monkeypatch: Any
) -> None:
    model, params = models.load(models.write(tmp_path / "theirs", name))
    tree = {"q1": {"out": np.arange(6.0).reshape(2, 3).T}, "v": np.array([7])}
    for folder, most in ((tmp_path / "one", weights.SHARD_BYTES), (tmp_path / "many", 4000)):
        monkeypatch.setattr(weights, "SHARD_BYTES", most)
        exported.write(folder, model.config, params, {"max_new_tokens": 7}, "# Card\n")
        (folder / "tokenizer.json").write_text(models.tokenizer())
        exported.write_tokenizer_config(folder, model.config, ("<a>", "<b>")[: most % 7])
    exported.write_tensors(folder / exported.VALUES, tree, {"clip": [1, None]})
    with safe_open(folder / exported.VALUES, framework="numpy") as file:
        parts = {
            "about": str(file.metadata()),
            "opening": "".join(exported.opening(model.config, "x's", "a, b")),
        }
    first, other = ({"type": "Metaspace", "prepend_scheme": scheme} for scheme in ("first", "never"))
    for place, given in enumerate((first, other, {"pretokenizers": [other, first]}, None)):
        path = tmp_path / f"tokens{place}.json"
        path.write_text(json.dumps({"pre_tokenizer": given, "model": "é", "padding": 1, "truncation": 2}))
        exported.split_at_special_tokens(path)
    compared(f"exported_{name}", of_folder(tmp_path, {}) | parts, record)
