"""Models, settings and inputs that cannot be are refused in one line with its reason."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from motif_jax import lm as language
from motif_jax.core.sections import LoraOnBase
from motif_jax.glam import drrn
from motif_jax.glam.config import DrrnPolicy
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.lm import (
    byte_pairs,
    config,
    finetune_params,
    folder,
    init_model,
    linear,
    lora,
    objectives,
    vocabulary,
)
from motif_jax.lm.heads import HeadConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import param_shapes
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.tokens import Tokenizer
from motif_jax.lm.weights import INDEX, SINGLE
from tests.lm import models, recipes
from tests.lm.linear_test import TREE
from tests.lm.models import parsed
from tests.lm.prompt_refusals_test import ASKED, asked
from tests.refusals import refuses

HEADS: list[tuple[dict[str, Any], str]] = [
    ({"activation": "swish"}, "head: activation='swish' is not one of relu, sigmoid, tanh, gelu"),
    (
        {"activation": ("relu", "relu")},
        "head: widths=(3,): needs an activation for each (('relu', 'relu')), and one width if residual",
    ),
    ({"kind": "deep"}, "head: kind='deep' is not one of mlp, residual"),
    ({"state": "last"}, "head: state='last' is not one of after, before"),
    ({"outputs": 0}, "head: outputs=0, widths=(3,): all must be at least 1"),
    ({"widths": (0,)}, "head: outputs=2, widths=(0,): all must be at least 1"),
    (
        {"kind": "residual", "widths": (3, 3)},
        "head: widths=(3, 3): needs an activation for each (relu), and one width if residual",
    ),
]
DECODINGS: list[tuple[dict[str, Any], str]] = [
    (
        {"width": 2},
        "config.decode.kind='sample': must be 'beam' or 'rerank' for width=2 and batches=1",
    ),
    (
        {"width": 2, "batches": 2},
        "config.decode.kind='sample': must be 'beam' or 'rerank' for width=2 and batches=2",
    ),
    (
        {"kind": "greedy", "batches": 3},
        "config.decode.kind='greedy': must be 'beam' or 'rerank' for width=1 and batches=3",
    ),
    (
        {"kind": "beam", "batches": 2},
        "config.decode.batches=2: must be 1 for beams; 'rerank' has several",
    ),
    (
        {"advantage_form": "sign"},
        "config.decode.advantage_weight=0.0: must be between 0 and 1 in the form 'sign'",
    ),
    (
        {"advantage_form": "sign", "advantage_weight": 1},
        "config.decode.advantage_weight=1: must be between 0 and 1 in the form 'sign'",
    ),
    (
        {"logits": False, "advantages": False},
        "config.decode.logits=False: must be True, or config.decode.advantages must be True",
    ),
    ({"top_k": -1}, "config.decode.top_k=-1: must be at least 0, which keeps all tokens"),
    (
        {"temperature": 0.0},
        "config.decode.temperature=0.0: must be above 0 (greedy takes the most likely token)",
    ),
    ({"top_p": 0.0}, "config.decode.top_p=0.0: must be above 0 and at most 1"),
    ({"top_p": 1.001}, "config.decode.top_p=1.001: must be above 0 and at most 1"),
]
SIZES = [
    ("gpt2", (14, 1, 4), "config.model.width=14: must be a multiple of the 4 heads"),
    (
        "qwen2",
        (12, 1, 4, 2),
        "config.model.width=12: must be a multiple of the 4 heads, and each of an even width",
    ),
    (
        "llama",
        (16, 1, 4, 3),
        "config.model.key_value_heads=3: must be a divisor of the 4 heads, and for other models than llama and qwen2 their number",
    ),
    (
        "t5",
        (16, 1, 4, 2),
        "config.model.key_value_heads=2: must be a divisor of the 4 heads, and for other models than llama and qwen2 their number",
    ),
]
# Contents in the place of a model's files, None for one that is not there.
BROKEN: list[tuple[str, str | None, str]] = [
    (config.FILE, None, "is not a language model: it has no config.json"),
    (config.FILE, "{", "config.json cannot be read: no JSON"),
    (
        config.FILE,
        '{"model_type": "mamba"}',
        "model_type 'mamba' is not one of t5, gpt2, llama, qwen2, qwen3, gemma3_text, roberta",
    ),
    ("tokenizer.json", None, "has no tokenizer.json: save it with transformers' AutoTokenizer"),
    ("tokenizer.json", "{", "tokenizer.json cannot be read"),
    (
        "tokenizer.json",
        models.tokenizer(90),
        "has 72 tokens, the model beside it 61: it belongs to another model",
    ),
    (
        INDEX,
        '{"weight_map": ["model.safetensors"]}',
        "weight_map does not say which file each tensor is in",
    ),
    (INDEX, '{"weight_map": {"a": 5}}', "weight_map does not say which file each tensor is in"),
    (SINGLE, None, "has no weights: no model.safetensors; save it with save_pretrained"),
    (SINGLE, "PK" + "0" * 100, "model.safetensors is not a safetensors file"),
    ("pytorch_model.bin", "", "pytorch_model.bin is a pickle, which is never opened here"),
]


@pytest.mark.parametrize(("changes", "words"), HEADS, ids=str)
def test_what_no_head_is_made_of_is_refused(changes: dict[str, Any], words: str) -> None:
    with refuses(words):
        HeadConfig(**{"outputs": 2, "widths": (3,), **changes})


@pytest.mark.parametrize(("values", "words"), DECODINGS, ids=str)
def test_settings_of_decoding_that_do_not_fit_are_refused(
    values: dict[str, Any], words: str
) -> None:
    with refuses(words):
        Decoding(**values)


def test_beams_are_no_wider_than_the_vocabulary() -> None:
    Decoding("beam", width=7).require_vocabulary(7)
    Decoding("rerank", width=8).require_vocabulary(7)
    with refuses("config.decode.width=8: must be at most 7, the size of the vocabulary"):
        Decoding("beam", width=8).require_vocabulary(7)


def test_a_temperature_of_zero_is_refused() -> None:
    with refuses("temperature=0.0: must be above 0 (greedy takes the most likely token)"):
        Sampling(temperature=0.0)


@pytest.mark.parametrize(("kind", "sizes", "words"), SIZES)
def test_sizes_that_do_not_divide_are_refused(
    kind: str, sizes: tuple[int, ...], words: str
) -> None:
    with refuses(words):
        init_model.make(kind, Sizes(*sizes), 50, {"start": 3, "pad": 4, "end": 5})


def test_a_tokenizer_that_does_not_fit_is_refused(worded: Path, tmp_path: Path) -> None:
    with refuses("tokenizer.json has no token 'none'"):
        Tokenizer.read(worded).token("none")
    with refuses(
        "tokenizer.json has 60 tokens, the model beside it 59: it belongs to another model"
    ):
        Tokenizer.read(worded, 59)
    with refuses("has no tokenizer.json: save it with transformers' AutoTokenizer"):
        Tokenizer.read(tmp_path)


def test_a_pattern_without_a_layer_names_those_there_are() -> None:
    with refuses(
        "config.lora.patterns: pattern '*/KEY' matches no linear layer; give one of */a/key, */b/key, */b/up"
    ):
        linear.matching(TREE, ("*/key", "*/KEY"))
    with refuses(
        "config.lora.patterns: pattern '*/none' matches no linear layer; give one of */attention/key"
    ):
        finetune_params.check(LoraOnBase(patterns="*/none"), param_shapes(parsed("gpt2", {})))


def test_a_rank_below_one_is_refused() -> None:
    with refuses("a rank of 0: must be at least 1"):
        lora.Spec(("*",), rank=0)


def test_four_bits_need_layers_of_whole_blocks() -> None:
    wide = [param_shapes(parsed("gpt2", {"n_embd": 64, "n_inner": inner})) for inner in (128, 96)]
    finetune_params.check(LoraOnBase(patterns="*/query", base="nf4"), wide[0])
    finetune_params.check(LoraOnBase(patterns="*/query", base="int8"), wide[1])
    with refuses(
        "config.lora.base='nf4': needs layers of a multiple of 64 inputs, this model has some of 96"
    ):
        finetune_params.check(LoraOnBase(patterns="*/query", base="nf4"), wide[1])


@pytest.mark.parametrize("name", ["", "config.json", "."])
def test_a_file_that_is_no_tokenizer_is_refused(worded: Path, tmp_path: Path, name: str) -> None:
    path = {"": "", "config.json": f"{worded}/config.json", ".": f"{tmp_path}"}[name]
    with refuses(
        "must be a tokenizer.json, or a folder with one (pretrain_language_model makes one of any texts)"
    ):
        drrn.tokenizer_file(path)


def test_a_tokenizer_may_be_named_by_its_file(worded: Path) -> None:
    drrn.check(DrrnPolicy(tokenizer=f"{worded}/tokenizer.json"), "drrn")
    with refuses("config.algorithm.name='ppo': must be 'drrn' for config.network.kind=drrn"):
        drrn.check(DrrnPolicy(tokenizer=str(worded)), "ppo")


def test_tokenizers_that_cannot_be_learned_are_refused() -> None:
    with refuses("config.tokenizer.phrase=(: must be a regular expression"):
        byte_pairs.check_phrase("(")
    with refuses("a vocabulary of 357 tokens: t5 needs at least 359"):
        byte_pairs.train(["a"], "t5", 357)


def test_models_that_no_folder_can_hold_are_refused(tmp_path: Path) -> None:
    with refuses("config.json of a gpt2 model cannot hold head_width=7: it would be read as 4"):
        folder.write(tmp_path / "new", dataclasses.replace(parsed("gpt2", {}), head_width=7), {})
    assert not (tmp_path / "new").exists()
    with refuses("a vocabulary of 60 tokens is smaller than the model's, which has 61"):
        vocabulary.extend(parsed("gpt2", {}), {}, recipes.VOCAB - 1, 0)


def test_a_length_without_room_for_a_span_is_refused() -> None:
    with refuses("config.length=2: must be at least 3, to hold a span"):
        objectives.span_window(2)


@pytest.mark.parametrize(("name", "content", "words"), BROKEN)
def test_a_folder_that_is_no_model_is_refused(
    worded: Path, tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    """By a stage before its work, and by the library."""
    model = shutil.copytree(worded, tmp_path / "model")
    # The one file of weights is read before an index or a pickle is looked for.
    replaced = SINGLE if name in ("pytorch_model.bin", INDEX) else name
    (model / replaced).unlink(missing_ok=True)
    if content is not None:
        (model / name).write_text(content)
    with refuses(words):
        asked("score_text", model, tmp_path / "good", ASKED)
    with refuses(words):
        language.load(model)
    assert not (tmp_path / "good").exists()
