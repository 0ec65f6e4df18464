"""Models, settings and inputs that cannot be are refused in one line with its reason."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import string
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models as tokenizer_models
from tokenizers import pre_tokenizers

from motif_jax import lm as language
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.sections import LoraOnBase
from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec
from motif_jax.glam import agent, drrn
from motif_jax.glam.config import DrrnPolicy
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
from tests.glam.agent_test import LEVEL, settings
from tests.lm import models, recipes, talkers
from tests.lm.linear_test import TREE

MOST = 1 << 24
CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"n_head": 0}, "config.json: n_head is 0, must be a whole number above 0"),
    ("gpt2", {"n_layer": 0}, "config.json: n_layer is 0, must be a whole number above 0"),
    ("gpt2", {"n_layer": 4097}, "config.json: layers is 4097, which no model has"),
    ("t5", {"num_layers": 4097}, "config.json: encoder_layers is 4097, which no model has"),
    ("t5", {"num_layers": -1}, "config.json: num_layers is -1, must be a whole number above 0"),
    ("gpt2", {"n_embd": 16777220, "n_inner": 1}, "config.json: width is 16777220, which no model has"),
    ("gpt2", {"vocab_size": True}, "config.json: vocab_size is True, must be a whole number above 0"),
    ("gpt2", {"n_positions": 2147483649}, "config.json: max_length is 2147483649, which no model has"),
    (
        "llama",
        {"num_key_value_heads": 4.0},
        "config.json: num_key_value_heads is 4.0, must be a whole number above 0",
    ),
    (
        "t5",
        {"model_type": 5},
        "config.json: model_type 5 is not one of t5, gpt2, llama, qwen2, qwen3, gemma3_text, roberta",
    ),
    ("gpt2", {"layer_norm_epsilon": "1"}, "config.json: layer_norm_epsilon is '1', must be a number"),
    (
        "gpt2",
        {"initializer_range": -1000000.0},
        "config.json: an epsilon, a scale or a dropout is not a number",
    ),
    ("gpt2", {"attn_pdrop": 1000000.0}, "config.json: an epsilon, a scale or a dropout is not a number"),
    (
        "gpt2",
        {"scale_attn_weights": False},
        "config.json: attention must be scaled by the width of a head, other scales are not supported",
    ),
    (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True},
        "config.json: attention must be scaled by the width of a head, other scales are not supported",
    ),
    (
        "gpt2",
        {"activation_function": "mish"},
        "config.json: activation 'mish' is not one of relu, gelu, gelu_new, silu",
    ),
    ("llama", {"num_attention_heads": None}, "config.json: num_attention_heads is missing"),
    (
        "gemma3",
        {"final_logit_softcapping": 30.0},
        "config.json: final_logit_softcapping is 30.0, which is not supported",
    ),
    (
        "gemma3",
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention is True, which is not supported",
    ),
    ("gemma3", {"layer_types": ["full_attention"]}, "config.json: layer_types has 1 entries for 3 layers"),
    (
        "qwen2_windows",
        {"layer_types": ["full_attention", "chunked_attention"]},
        "config.json: layer_types has 'chunked_attention', must be full_attention or sliding_attention",
    ),
    (
        "qwen2_windows",
        {"sliding_window": 0},
        "config.json: sliding_window is 0, must be a whole number above 0",
    ),
    (
        "llama",
        {"rope_parameters": {"rope_type": "yarn"}},
        "config.json: rotary positions of type 'yarn' are not supported",
    ),
    (
        "t5",
        {"feed_forward_proj": "gated-mish"},
        "config.json: activation 'mish' is not one of relu, gelu, gelu_new, silu",
    ),
    (
        "llama",
        {"rope_parameters": None, "rope_scaling": {"type": "dynamic"}},
        "config.json: rotary positions of type 'dynamic' are not supported",
    ),
]
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
    ({"width": 2}, "config.decode.kind='sample': must be 'beam' or 'rerank' for width=2 and batches=1"),
    (
        {"width": 2, "batches": 2},
        "config.decode.kind='sample': must be 'beam' or 'rerank' for width=2 and batches=2",
    ),
    (
        {"kind": "greedy", "batches": 3},
        "config.decode.kind='greedy': must be 'beam' or 'rerank' for width=1 and batches=3",
    ),
    ({"kind": "beam", "batches": 2}, "config.decode.batches=2: must be 1 for beams; 'rerank' has several"),
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
AGENTS: list[tuple[dict[str, Any], str]] = [
    (
        {"head_widths": ()},
        "config.network.head_widths=(): must be whole numbers above 0, such as (1024, 1024)",
    ),
    ({"model": ""}, "config.network.model='': must be a folder, or a name of the hub"),
    (
        {"glam_raw_logit_score": True, "score": "scaled_probability"},
        "config.compat.glam_raw_logit_score=True: must be False: the score has one form, and compat.glam_raw_logit_score, compat.glam_scaled_probability_score and network.score name several",
    ),
    (
        {"glam_scaled_probability_score": True, "glam_raw_logit_score": True},
        "config.compat.glam_raw_logit_score=True: must be False: the score has one form, and compat.glam_raw_logit_score, compat.glam_scaled_probability_score and network.score name several",
    ),
    (
        {"base": "int8"},
        "config.lora.base='int8': must be 'float32' without config.lora.patterns: what is learned is not frozen",
    ),
    (
        {"patterns": "*/query", "pretrained": False},
        "config.network.pretrained=False: must be True with config.lora.patterns: low-rank additions are learned to a model that is there",
    ),
]
QUESTIONS = [
    ("", "config.file=rows.jsonl: holds no prompt"),
    (
        '{"prompt": "a"}\n[1]\n',
        'rows.jsonl line 2: must be an object with a text under "prompt", or with turns {"role": ..., "content": ...}',
    ),
    (
        '{"prompt": 3}\n',
        'rows.jsonl line 1: must be an object with a text under "prompt", or with turns {"role": ..., "content": ...}',
    ),
    ("no\n", "rows.jsonl line 1 cannot be read: no JSON: Expecting value: line 1 column 1 (char 0)"),
    ('{"prompt": "a", "candidates": []}\n', 'rows.jsonl line 1: "candidates" must be a list of texts'),
    (
        "ÿ",
        "config.file=rows.jsonl cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    ('{"prompt": "a", "candidates": ["b", 2]}\n', 'rows.jsonl line 1: "candidates" must be a list of texts'),
    ('{"prompt": "a", "candidates": "b"}\n', 'rows.jsonl line 1: "candidates" must be a list of texts'),
    (
        '{"prompt": "a"}\n{"prompt": "\\ud800"}\n',
        "rows.jsonl line 2: half of a character stands in its texts (surrogates not allowed)",
    ),
    (
        '{"prompt": "a", "candidates": ["\\udc00"]}\n',
        "rows.jsonl line 1: half of a character stands in its texts (surrogates not allowed)",
    ),
]
ASKED = {"prompt": "go", "candidates": ["left", "right"]}
UNSCORED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "go" * 60, "candidates": [" left"]}, "a prompt of 60 tokens ('gogo"),
    ({"prompt": "", "candidates": ["left"]}, "text '' has no tokens"),
    (
        {"prompt": "go", "candidates": ["left", "right", "left"]},
        "candidates 'left' and 'left' have the same tokens",
    ),
    ({"prompt": "go", "candidates": ["left", ""]}, "candidate '' has no tokens"),
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
    (INDEX, '{"weight_map": ["model.safetensors"]}', "weight_map does not say which file each tensor is in"),
    (INDEX, '{"weight_map": {"a": 5}}', "weight_map does not say which file each tensor is in"),
    (SINGLE, None, "has no weights: no model.safetensors; save it with save_pretrained"),
    (SINGLE, "PK" + "0" * 100, "model.safetensors is not a safetensors file"),
    ("pytorch_model.bin", "", "pytorch_model.bin is a pickle, which is never opened here"),
]


def letters() -> Tokenizer:
    """A tokenizer with a token for each letter."""
    numbers = {letter: number for number, letter in enumerate(string.printable)}
    backend = Backend(tokenizer_models.WordLevel(numbers, " "))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return Tokenizer(backend)


def parsed(name: str, changes: dict[str, Any]) -> config.ModelConfig:
    changed = {**recipes.CONFIGS[name], **changes}
    return config.parse({key: value for key, value in changed.items() if value is not None}, "config.json")


FITS: Any = partial(prompt_length.require, letters(), parsed("gpt2", {"n_positions": 9}))


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talkers.write(tmp_path_factory.mktemp("talker") / "model", "gpt2")


def agent_of(talker: Path, shape: tuple[int, ...], tokens: int = 160) -> Any:
    """An agent of a level whose prompts have candidates of this shape."""
    spec = registry.spec(LEVEL, **agent_networks.environment_options(settings(model=str(talker))))
    fields = {**spec.observation, "candidates": ArraySpec(shape, "int32")}
    changed = dataclasses.replace(spec, observation=fields)
    return agent_networks.make(settings(model=str(talker), prompt_tokens=tokens), changed)


def asked(name: str, model: Path, at: Path, row: dict[str, Any], **values: Any) -> None:
    """A stage over texts before its work."""
    at.with_suffix(".jsonl").write_text(f"{json.dumps(ASKED)}\n{json.dumps(row)}\n")
    config = resources.config(name)
    config.update(model=str(model), file=f"{at}.jsonl", **values)
    prompted_texts.check(config, at / "run")


def refuses(words: str) -> Any:
    """One line that holds these words."""
    return pytest.raises(UserError, match=rf"(?s)\A[^\n]*{re.escape(words)}[^\n]*\Z")


@pytest.mark.parametrize(("name", "changes", "words"), CONFIGS)
def test_a_config_that_no_model_has_is_refused(name: str, changes: dict[str, Any], words: str) -> None:
    with refuses(words):
        parsed(name, changes)


def test_the_largest_config_is_read() -> None:
    largest = dict.fromkeys(("vocab_size", "n_embd", "n_inner"), MOST) | {"n_layer": 4096}
    parsed("gpt2", {**largest, "n_positions": 1 << 31, "attn_pdrop": 0.5})


def test_a_config_that_is_no_object_is_refused() -> None:
    with refuses("holds a JSON list, must be an object"):
        config.parse([])  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(5, 3), (6,), (7, 3), (6, 3, 1)])
def test_candidates_of_another_shape_are_refused(talker: Path, shape: tuple[int, ...]) -> None:
    with refuses(f"the environment's candidates are {list(shape)}: they must be [6 actions, tokens]"):
        agent_of(talker, shape)


def test_prompts_and_actions_must_fit_the_model(talker: Path) -> None:
    assert agent_of(talker, (6, 17), 239).candidates is None
    with refuses(
        "config.network.prompt_tokens=160: prompt and action must fit the 256 positions of the model"
    ):
        agent_of(talker, (6, 97))


def test_an_environment_without_tokens_is_refused(talker: Path) -> None:
    with refuses("config.network.kind=language: the environment shows no tokens"):
        agent_networks.make(settings(model=str(talker)), registry.spec("Recall-v0"))


@pytest.mark.parametrize(("changes", "words"), AGENTS, ids=str)
def test_sections_that_make_no_agent_are_refused(changes: dict[str, Any], words: str) -> None:
    sections = settings(**{"model": "m", **changes})
    with refuses(words):
        agent.check(sections.network, sections.lora, sections.compat)


def test_a_fresh_agent_needs_no_weights() -> None:
    sections = settings(model="m", pretrained=False)
    agent.check(sections.network, sections.lora, sections.compat)


@pytest.mark.parametrize(("changes", "words"), HEADS, ids=str)
def test_what_no_head_is_made_of_is_refused(changes: dict[str, Any], words: str) -> None:
    with refuses(words):
        HeadConfig(**{"outputs": 2, "widths": (3,), **changes})


@pytest.mark.parametrize(("values", "words"), DECODINGS, ids=str)
def test_settings_of_decoding_that_do_not_fit_are_refused(values: dict[str, Any], words: str) -> None:
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
def test_sizes_that_do_not_divide_are_refused(kind: str, sizes: tuple[int, ...], words: str) -> None:
    with refuses(words):
        init_model.make(kind, Sizes(*sizes), 50, {"start": 3, "pad": 4, "end": 5})


@pytest.mark.parametrize(("content", "words"), QUESTIONS)
def test_a_file_of_prompts_that_cannot_be_read_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UserError) as caught:
        read_questions(path, "file")
    assert str(caught.value).replace(f"{tmp_path}/", "") == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "config.file must name a file of prompts"),
        ("none.txt", "config.file=none.txt: there is no such file"),
    ],
)
def test_a_file_of_prompts_must_be_there(name: str, words: str) -> None:
    with refuses(words):
        read_questions(name, "file")


def test_a_model_without_a_decoder_scores_nothing() -> None:
    with refuses("a roberta model scores no text: it has no decoder"):
        config.require_decoder(parsed("roberta", {}), "scores")


def test_a_tokenizer_that_does_not_fit_is_refused(worded: Path, tmp_path: Path) -> None:
    with refuses("tokenizer.json has no token 'none'"):
        Tokenizer.read(worded).token("none")
    with refuses("tokenizer.json has 60 tokens, the model beside it 59: it belongs to another model"):
        Tokenizer.read(worded, 59)
    with refuses("has no tokenizer.json: save it with transformers' AutoTokenizer"):
        Tokenizer.read(tmp_path)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "there are no candidates to choose between"),
        (["a", ""], "candidate '' has no tokens"),
        (["a", "b", "a"], "candidates 'a' and 'a' have the same tokens"),
    ],
)
def test_candidates_that_cannot_be_told_apart_are_refused(worded: Path, texts: list[str], words: str) -> None:
    with refuses(words):
        candidate_rows(Tokenizer.read(worded), texts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (["abc", "abcdef"], [["a"], ["wxyz"]]),
            "a prompt of 6 tokens ('abcdef'...) and 4 more do not fit a model of 9",
        ),
        (
            (["0123456789" * 5],),
            "a prompt of 50 tokens ('0123456789012345678901234567890123456789'...) and 0 more",
        ),
        ((["a", ""],), "text '' has no tokens"),
        (
            (["abcdefgh"], None, 2),
            "a prompt of 8 tokens ('abcdefgh'...) and 2 more do not fit a model of 9 positions",
        ),
    ],
)
def test_texts_longer_than_the_model_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    with refuses(words):
        FITS(*arguments)


def test_texts_that_just_fit_are_taken() -> None:
    FITS(["abc", "abcde"], [["a", "wxyz"], ["wxy"]])
    FITS(["abcdefghi"])


def test_lists_of_candidates_are_for_all_or_for_each() -> None:
    assert prompt_length.each_prompts(["p", "q"], ["a", "b"]) == [("a", "b")] * 2
    assert prompt_length.each_prompts(["p", "q"], [["a"], ["b", "c"]]) == [("a",), ("b", "c")]
    with refuses("2 lists of candidates for 1 prompts: one for each, or one for all"):
        prompt_length.each_prompts(["p"], [["a"], ["b"]])


def test_a_pattern_without_a_layer_names_those_there_are() -> None:
    with refuses(
        "config.lora.patterns: pattern '*/KEY' matches no linear layer; there are */a/key, */b/key, */b/up"
    ):
        linear.matching(TREE, ("*/key", "*/KEY"))
    with refuses("config.lora.patterns: pattern '*/none' matches no linear layer; there are */attention/key"):
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


def test_texts_to_learn_from_must_be_there(worded: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    for path, words in (
        (worded / "none", "config.texts={}: there is no such file or folder"),
        (
            worded / "config.json",
            "config.texts={}: must be a file or folder of .txt, .md, .jsonl, .parquet files",
        ),
        (tmp_path / "empty.jsonl", "config.texts={}: holds no text"),
    ):
        with refuses(words.format(path)):
            corpus.find(str(path))
    with refuses("config.words=none: there is no such file or folder"):
        corpus.find("none", "words")


def test_an_empty_stop_or_no_candidate_is_refused(worded: Path) -> None:
    loaded = language.load(worded)
    with refuses("a stop is empty: it would end every text"):
        loaded.generate(["go"], stops=["a", ""])
    with refuses("there are no candidates to choose between"):
        loaded.score(["go"], [])


def test_tokenizers_that_cannot_be_learned_are_refused() -> None:
    with refuses("config.tokenizer.phrase=(: is no regular expression"):
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


def test_a_stage_scores_no_text_by_a_model_without_a_decoder(worded: Path, tmp_path: Path) -> None:
    model = shutil.copytree(worded, tmp_path / "model")
    (model / config.FILE).write_text(json.dumps(recipes.CONFIGS["roberta"]))
    with refuses("a roberta model scores no text: it has no decoder"):
        asked("score_text", model, tmp_path / "good", ASKED)


@pytest.mark.parametrize(("row", "words"), UNSCORED)
def test_texts_that_cannot_be_scored_are_refused(
    worded: Path, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    """By a stage before its work, and by the library."""
    with refuses(words):
        asked("score_text", worded, tmp_path / "rows", row)
    with refuses(words):
        language.load(worded).score([row["prompt"]], row["candidates"])
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(("row", "words"), UNSCORED[:2])
def test_prompts_that_cannot_be_continued_are_refused(
    worded: Path, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    with refuses(words):
        asked("generate_text", worded, tmp_path / "rows", row, most=4)
