"""The files of an exported folder, whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from motif_jax.language import exported, weights
from motif_jax.support.files import read_json
from tests.language import models

FRONT = """---
library_name: transformers
pipeline_tag: {}
tags: [motif_jax, a, b]
---
"""
CODE = """```python
from transformers import AutoTokenizer, {0}

tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), {0}.from_pretrained(FOLDER)
tokens = model.generate(**tokenizer('say "x"', return_tensors="pt"))
tokenizer.decode(tokens[0])
```
"""
SERVED = """
```python
from vllm import LLM

LLM(FOLDER, dtype="float32").generate('say "x"')
```
"""


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("shard_bytes", [weights.SHARD_BYTES, 4000])
def test_a_model_has_an_index_its_generation_and_its_card(
    tmp_path: Path, name: str, shard_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, params = models.load(models.write(tmp_path / "theirs", name))
    monkeypatch.setattr(weights, "SHARD_BYTES", shard_bytes)
    exported.write(tmp_path / "ours", model.config, params, {"max_new_tokens": 7}, "# Card\n")
    index = read_json(tmp_path / "ours" / weights.INDEX, "")
    sizes = {key: 4 * int(np.prod(shape)) for key, shape in models.shapes()[name].items()}
    assert index["metadata"] == {"total_size": sum(sizes.values())}
    assert index["weight_map"].keys() == sizes.keys()
    assert (set(index["weight_map"].values()) == {weights.SINGLE}) == (shard_bytes > 4000)
    special = {"bos_token_id": 2, "pad_token_id": 2, "eos_token_id": [2]}
    if name == "t5":
        special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": [1]}
    assert read_json(tmp_path / "ours" / exported.GENERATION, "") == {**special, "max_new_tokens": 7}
    assert (tmp_path / "ours" / "README.md").read_text() == "# Card\n"
    pipeline, kind = (
        ("text-generation", "AutoModelForCausalLM"),
        ("text2text-generation", "AutoModelForSeq2SeqLM"),
    )
    task, auto = kind if name == "t5" else pipeline
    wanted = FRONT.format(task), CODE.format(auto) + SERVED * (name == "gpt2")
    assert exported.opening(model.config, 'say "x"', "a, b") == wanted


def test_a_tokenizer_is_described_and_split_at_special_tokens(worded: Path, tmp_path: Path) -> None:
    model, _ = models.load(worded)
    (tmp_path / "tokenizer.json").write_bytes((worded / "tokenizer.json").read_bytes())
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "</s>", "model_max_length": 48,
        "model_input_names": ["input_ids", "attention_mask"], "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    for special in ((), ("<a>", "<b>")):
        exported.write_tokenizer_config(tmp_path, model.config, special)
        more = {"additional_special_tokens": ["<a>", "<b>"]} if special else {}
        assert read_json(tmp_path / exported.TOKENIZER_CONFIG, "") == described | more
    first, other = ({"type": "Metaspace", "prepend_scheme": scheme} for scheme in ("first", "never"))
    always, path = {**first, "prepend_scheme": "always"}, tmp_path / "any.json"
    for given, wanted in (
        (first, always),
        (other, other),
        ({"pretokenizers": [other, first]}, {"pretokenizers": [other, always]}),
        (None, None),
    ):
        path.write_text(json.dumps({"pre_tokenizer": given, "model": "é", "padding": 1, "truncation": 2}))
        exported.split_at_special_tokens(path)
        nothing = dict.fromkeys(("post_processor", "padding", "truncation"))
        assert json.loads(path.read_text()) == {"pre_tokenizer": wanted, "model": "é", **nothing}
        assert "é" in path.read_text()


def test_a_trees_arrays_are_named_by_their_path_beside_what_is_said_of_them(tmp_path: Path) -> None:
    tree: dict[str, Any] = {"q1": {"out": np.arange(6.0).reshape(2, 3).T}, "v": np.array([7])}
    exported.write_tensors(tmp_path / "values", tree, {"clip": [1, None]})
    with safe_open(tmp_path / "values", framework="numpy") as file:
        assert file.metadata() == {"about": '{"clip": [1, null]}'}
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            "q1.out": [[0, 3], [1, 4], [2, 5]], "v": [7]
        }  # fmt: skip
