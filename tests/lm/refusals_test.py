"""What models, their settings and their inputs cannot be is told in words that stay what they were."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from motif_jax import lm as language
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.sections import LoraOnBase
from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec
from motif_jax.glam import agent, drrn
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.lm import (
    byte_pairs,
    config,
    corpus,
    finetune_params,
    folder,
    init_model,
    linear,
    lora,
    objectives,
    prompt_length,
    prompted_texts,
    vocabulary,
)
from motif_jax.lm.heads import HeadConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import param_shapes
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.text_files import read_questions
from motif_jax.lm.tokens import Tokenizer, candidate_rows
from motif_jax.lm.weights import INDEX, SINGLE
from motif_jax.rl import agent_networks
from motif_jax.rl.policy_config import DrrnPolicy
from tests.glam.agent_test import LEVEL, settings
from tests.lm import models, recipes, talkers
from tests.lm.linear_test import TREE
from tests.recorded_outputs import assert_matches_packed_recording, replaced

MOST = 1 << 24
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"n_head": 0}),
    ("gpt2", {"n_layer": 0}),
    ("gpt2", {"n_layer": 4097}),
    ("t5", {"num_layers": 4097}),
    ("t5", {"num_layers": -1}),
    ("gpt2", {"n_embd": MOST + 4, "n_inner": 1}),
    ("gpt2", {"vocab_size": True}),
    ("gpt2", {"n_positions": (1 << 31) + 1}),
    ("llama", {"num_key_value_heads": 4.0}),
    ("t5", {"model_type": 5}),
    ("gpt2", {"layer_norm_epsilon": "1"}),
    ("gpt2", {"initializer_range": -1e6}),
    ("gpt2", {"attn_pdrop": 1e6}),
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"activation_function": "mish"}),
    ("llama", {"num_attention_heads": None}),
    ("qwen2", {"use_sliding_window": True}),
    ("llama", {"rope_parameters": {"rope_type": "yarn"}}),
    ("t5", {"feed_forward_proj": "gated-mish"}),
    ("llama", {"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}),
]
HEADS: list[dict[str, Any]] = [
    {"activation": "swish"},
    {"activation": ("relu", "relu")},
    {"kind": "deep"},
    {"state": "last"},
    {"outputs": 0},
    {"widths": (0,)},
    {"kind": "residual", "widths": (3, 3)},
]
DECODINGS: list[dict[str, Any]] = [
    {"width": 2},
    {"width": 2, "batches": 2},
    {"kind": "greedy", "batches": 3},
    {"kind": "beam", "batches": 2},
    {"advantage_form": "sign"},
    {"advantage_form": "sign", "advantage_weight": 1},
    {"logits": False, "advantages": False},
    {"top_k": -1},
    {"temperature": 0.0},
    {"top_p": 0.0},
    {"top_p": 1.001},
]
SIZES = ("gpt2", (14, 1, 4)), ("qwen2", (12, 1, 4, 2)), ("llama", (16, 1, 4, 3)), ("t5", (16, 1, 4, 2))
AGENTS: list[dict[str, Any]] = [
    {"head_widths": ()},
    {"model": ""},
    {"glam_raw_logit_score": True, "score": "scaled_probability"},
    {"glam_scaled_probability_score": True, "glam_raw_logit_score": True},
    {"base": "int8"},
    {"patterns": "*/query", "pretrained": False},
]
QUESTIONS = (
    "",
    '{"prompt": "a"}\n[1]\n',
    '{"prompt": 3}\n',
    "no\n",
    '{"prompt": "a", "candidates": []}\n',
    "\xff",
    '{"prompt": "a", "candidates": ["b", 2]}\n',
    '{"prompt": "a", "candidates": "b"}\n',
    '{"prompt": "a"}\n{"prompt": "\\ud800"}\n',
    '{"prompt": "a", "candidates": ["\\udc00"]}\n',
)
ASKED = {"prompt": "go", "candidates": ["left", "right"]}
UNSCORED: list[dict[str, Any]] = [
    {"prompt": "go " * 60, "candidates": ["left"]},
    {"prompt": "", "candidates": ["left"]},
    {"prompt": "go", "candidates": ["left", "right", "left"]},
    {"prompt": "go", "candidates": ["left", ""]},
]
# Contents in the place of a model's files, None for one that is not there.
BROKEN: dict[str, list[str | None]] = {
    config.FILE: [None, "{", '{"model_type": "mamba"}', json.dumps(recipes.CONFIGS["roberta"])],
    "tokenizer.json": [None, "{", models.tokenizer(90)],
    INDEX: ['{"weight_map": ["model.safetensors"]}', '{"weight_map": {"a": 5}}'],
    SINGLE: [None, "PK" + "0" * 100],
    "pytorch_model.bin": [""],
}


class Letters:
    """A tokenizer with a token for each letter."""

    @staticmethod
    def encode(texts: list[str], special: bool = True) -> list[list[int]]:
        return [[*map(ord, text)] for text in texts]


def parsed(name: str, changes: dict[str, Any]) -> config.ModelConfig:
    changed = {**recipes.CONFIGS[name], **changes}
    return config.parse({key: value for key, value in changed.items() if value is not None}, "config.json")


FITS: Any = partial(prompt_length.require, Letters(), parsed("gpt2", {"n_positions": 9}))


def agents(folder: Path) -> list[Callable[[], Any]]:
    """What an agent is not made of: its sections, and environments."""
    talkers.write(folder, "gpt2")
    spec = registry.spec(LEVEL, **agent_networks.environment_options(settings(model=str(folder))))
    own = lambda *shape: {**spec.observation, "candidates": ArraySpec(shape, "int32")}  # noqa: E731
    made = lambda shape, tokens=160: agent_networks.make(  # noqa: E731
        settings(model=str(folder), prompt_tokens=tokens), dataclasses.replace(spec, observation=own(*shape))
    )
    assert made((6, 17), 239).candidates is None
    calls = [partial(made, shape) for shape in ((5, 3), (6,), (7, 3), (6, 3, 1), (6, 97))]
    fresh, *sections = [settings(**{"model": "m", **changes}) for changes in ({"pretrained": False}, *AGENTS)]
    agent.check(fresh.network, fresh.lora, fresh.compat)
    calls += [partial(agent.check, each.network, each.lora, each.compat) for each in sections]
    return [*calls, lambda: agent_networks.make(settings(model=str(folder)), registry.spec("Recall-v0"))]


def asked(name: str, model: Path, at: Path, row: dict[str, Any], **values: Any) -> None:
    """A stage over texts before its work."""
    at.with_suffix(".jsonl").write_text(f"{json.dumps(ASKED)}\n{json.dumps(row)}\n")
    config = resources.config(name)
    config.update(model=str(model), file=f"{at}.jsonl", **values)
    prompted_texts.check(config, at / "run")


def unread(worded: Path, at: Path) -> list[Callable[[], Any]]:
    """What is no model, or does not fit one."""
    calls: list[Callable[[], Any]] = []
    for name, content in ((name, content) for name, each in BROKEN.items() for content in each):
        model = shutil.copytree(worded, at / f"model{len(calls)}")
        (model / (SINGLE if name == "pytorch_model.bin" else name)).unlink(missing_ok=True)
        if content is not None:
            (model / name).write_text(content)
        calls.append(partial(asked, "score_text", model, at / "good", ASKED))
        if "roberta" not in (content or ""):
            calls.append(partial(language.load, model))
    score = language.load(worded).score
    for row in UNSCORED:
        calls.append(partial(asked, "score_text", worded, at / "rows", row))
        calls.append(partial(score, [row["prompt"]], row["candidates"]))
    return [
        *calls,
        *(partial(asked, "generate_text", worded, at / "rows", row, most=4) for row in UNSCORED[:2]),
    ]


def test_words_of_refusals_stay_what_they_were(worded: Path, tmp_path: Path, record: bool) -> None:
    tokenizer, paths = Tokenizer.read(worded), [tmp_path / f"{n}.jsonl" for n in range(len(QUESTIONS))]
    for path, content in zip(paths, QUESTIONS, strict=True):
        path.write_text(content, encoding="latin-1")
    wide = [param_shapes(parsed("gpt2", {"n_embd": 64, "n_inner": inner})) for inner in (128, 96)]
    finetune_params.check(LoraOnBase(patterns="*/query", base="nf4"), wide[0])
    finetune_params.check(LoraOnBase(patterns="*/query", base="int8"), wide[1])
    largest = dict.fromkeys(("vocab_size", "n_embd", "n_inner"), MOST) | {"n_layer": 4096}
    parsed("gpt2", {**largest, "n_positions": 1 << 31, "attn_pdrop": 0.5})
    FITS(["abc", "abcde"], [["a", "wxyz"], ["wxy"]])
    FITS(["abcdefghi"])
    assert prompt_length.each_prompts(["p", "q"], ["a", "b"]) == [("a", "b")] * 2
    assert prompt_length.each_prompts(["p", "q"], [["a"], ["b", "c"]]) == [("a",), ("b", "c")]
    drrn.check(DrrnPolicy(tokenizer=f"{worded}/tokenizer.json"), "drrn")
    Decoding("beam", width=7).require_vocabulary(7)
    Decoding("rerank", width=8).require_vocabulary(7)
    calls: list[Callable[[], Any]] = [
        *(partial(parsed, *each) for each in CONFIGS),
        partial(config.parse, []),
        *agents(tmp_path / "model"),
        *(partial(HeadConfig, **{"outputs": 2, "widths": (3,), **each}) for each in HEADS),
        *(partial(Decoding, **each) for each in DECODINGS),
        partial(Sampling, temperature=0.0),
        partial(Decoding("beam", width=8).require_vocabulary, 7),
        *(
            partial(init_model.make, kind, Sizes(*given), 50, {"start": 3, "pad": 4, "end": 5})
            for kind, given in SIZES
        ),
        *(partial(read_questions, path, "file") for path in (*paths, "", tmp_path / "none.txt")),
        partial(config.require_decoder, parsed("roberta", {}), "scores"),
        partial(tokenizer.token, "none"),
        partial(Tokenizer.read, worded, 59),
        partial(Tokenizer.read, tmp_path),
        *(partial(candidate_rows, tokenizer, texts) for texts in ([], ["a", ""], ["a", "b", "a"])),
        partial(FITS, ["abc", "abcdef"], [["a"], ["wxyz"]]),
        partial(FITS, ["0123456789" * 5]),
        partial(FITS, ["a", ""]),
        partial(FITS, ["abcdefgh"], None, 2),
        partial(prompt_length.each_prompts, ["p"], [["a"], ["b"]]),
        partial(linear.matching, TREE, ("*/key", "*/KEY")),
        partial(lora.Spec, ("*",), rank=0),
        partial(finetune_params.check, LoraOnBase(patterns="*/query", base="nf4"), wide[1]),
        partial(finetune_params.check, LoraOnBase(patterns="*/none"), wide[0]),
        *(partial(drrn.tokenizer_file, name) for name in ("", f"{worded}/config.json", f"{tmp_path}")),
        *(partial(corpus.find, f"{worded}/{name}") for name in ("none", "config.json")),
        partial(corpus.find, "none", "words"),
        partial(corpus.find, str(tmp_path / "0.jsonl")),
        partial(language.load(worded).generate, ["go"], stops=["a", ""]),
        partial(language.load(worded).score, ["go"], []),
        partial(drrn.check, DrrnPolicy(tokenizer=str(worded)), "ppo"),
        partial(byte_pairs.check_phrase, "("),
        partial(byte_pairs.train, ["a"], "t5", 357),
        partial(folder.write, tmp_path / "new", dataclasses.replace(parsed("gpt2", {}), head_width=7), {}),
        partial(vocabulary.extend, parsed("gpt2", {}), {}, recipes.VOCAB - 1, 0),
        partial(objectives.span_window, 2),
        *unread(worded, tmp_path),
    ]
    said = []
    for call in calls:
        with pytest.raises(UserError) as raised:
            call()
        said.append(replaced(str(raised.value), {worded: "WORDED", tmp_path: "FOLDER"}))
    assert not any((tmp_path / name).exists() for name in ("new", "good", "rows"))
    assert_matches_packed_recording("language_refusals", {"said": "\n".join(said)}, record)
