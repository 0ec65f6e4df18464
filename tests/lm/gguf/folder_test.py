"""A GGUF file stands for a model's folder: the same parameters, tokens, scores and chat
template.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import lm
from motif_jax.core.errors import UserError
from motif_jax.lm import chat_template, config, weights
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.gguf import tokenizer as gguf_tokenizer
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from tests import made_up_judge
from tests.lm import models, recipes
from tests.lm.gguf import gguf_writing

PROMPTS = ["You kill the newt!", "Message A: You see here"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def judge(tmp_path: Path) -> Path:
    return made_up_judge.write(tmp_path / "judge")


# What llama.cpp takes for granted of a Gemma 3.
GEMMA = {
    "query_pre_attn_scalar": 6,
    "rope_parameters": None,
    "rope_theta": 500.0,
    "rope_local_base_freq": 10000.0,
}
GEMMA |= {"layer_types": None, "sliding_window_pattern": 6}
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def plain_checkpoint(path: Path, name: str) -> Path:
    """The checkpoint `name` of the recipes with unscaled rotary positions."""
    folder = models.write(path, name)
    changes = GEMMA if name == "gemma3" else {"rope_parameters": recipes.PLAIN}
    values = {**recipes.CONFIGS[name], **changes}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "tokenizer.json").write_text(models.tokenizer())
    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_those_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = plain_checkpoint(tmp_path / "theirs", name)
    file = gguf_writing.write(folder, tmp_path / "model.gguf")

    from_file = weights.load(fetch(file), config.read(fetch(file)))

    # Norms of Gemma are stored with 1 added, which rounds them.
    chex.assert_trees_all_close(from_file, weights.load(folder, config.read(folder)), atol=2e-7)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_config_is_that_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = plain_checkpoint(tmp_path / "theirs", name)
    file = gguf_writing.write(folder, tmp_path / "model.gguf")

    from_file = config.read(fetch(file))
    from_folder = config.read(folder)

    # What a GGUF file does not say: it is of training alone.
    assert from_file.norm_epsilon == pytest.approx(from_folder.norm_epsilon)
    fields = {"norm_epsilon": 0.0, "dropout": config.Dropout()}
    assert dataclasses.replace(from_file, **fields) == dataclasses.replace(from_folder, **fields)


def test_half_precision_is_that_of_the_file(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "half.gguf", dtype="BF16")
    settings = config.read(fetch(file))

    from_file = weights.load(fetch(file), settings, jnp.bfloat16)

    chex.assert_trees_all_equal(from_file, weights.load(judge, settings, jnp.bfloat16))


@pytest.mark.extra
def test_scores_and_texts_are_those_of_the_folder(tmp_path: Path, judge: Path) -> None:
    from_file = lm.load(gguf_writing.write(judge, tmp_path / "model.gguf"))
    from_folder = lm.load(judge)

    scores = from_file.score(PROMPTS, [" A", " B"])
    np.testing.assert_allclose(scores, from_folder.score(PROMPTS, [" A", " B"]), rtol=1e-5)
    assert from_file.generate(PROMPTS, max_new_tokens=8) == from_folder.generate(
        PROMPTS, max_new_tokens=8
    )


def test_chat_template_is_that_of_the_folder(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "model.gguf")

    template = chat_template.read(fetch(file))

    assert template is not None
    assert template.text == made_up_judge.CHATML


def test_folder_with_one_gguf_file_is_that_file(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "downloaded" / "model-f32.gguf")

    assert fetch(file.parent) == fetch(file)


def test_folder_with_several_gguf_files_asks_for_one(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "downloaded" / "a.gguf")
    file.with_name("b.gguf").write_bytes(file.read_bytes())

    with pytest.raises(UserError, match=r"has several GGUF files \(a\.gguf, b\.gguf\)"):
        fetch(file.parent)


def test_changed_file_is_read_again(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "model.gguf")
    before = fetch(file)
    gguf_writing.write(made_up_judge.write(tmp_path / "other", template=None), file)

    assert fetch(file) != before
    assert chat_template.read(fetch(file)) is None


def test_digest_is_that_of_the_files_content(tmp_path: Path, judge: Path) -> None:
    file = gguf_writing.write(judge, tmp_path / "model.gguf")
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(file.read_bytes())
    other = gguf_writing.write(
        made_up_judge.write(tmp_path / "other", seed=1), tmp_path / "other.gguf"
    )

    assert weights.digest(fetch(copy)) == weights.digest(fetch(file))
    assert weights.digest(fetch(other)) != weights.digest(fetch(file))


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q_norm.weight", "blk.1.attn_sinks.weight", "output.bias"]
)
def test_part_of_the_network_that_is_not_used_is_refused(tmp_path: Path, name: str) -> None:
    folder = plain_checkpoint(tmp_path / "theirs", "llama")
    more = {name: np.ones(3, np.float32)}
    path = gguf_writing.write(folder, tmp_path / "model.gguf", more_tensors=more)

    with pytest.raises(UserError, match=rf"{name}: float\[3\] saved, absent wanted"):
        lm.load(path)


def test_refused_file_leaves_nothing_behind(tmp_path: Path) -> None:
    file = gguf_writing.only_metadata(tmp_path / "model.gguf", "phi3", {})

    with pytest.raises(
        UserError, match=r"general\.architecture is 'phi3', must be one of llama, qwen2"
    ):
        gguf_folder.folder_of(file)
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_tokens_of_a_folder_are_those_of_the_file(tmp_path: Path, judge: Path) -> None:
    """A beginning whose kind is that of ordinary pieces is cut, as llama.cpp does."""
    number = made_up_judge.tokenizer().token_to_id("A")
    file = gguf_writing.write(
        judge, tmp_path / "model.gguf", {"tokenizer.ggml.padding_token_id": number}
    )

    folder = fetch(file)

    texts = ["You kill the newt! A", "<|im_start|>user\nAB<|im_end|>"]
    expected = [encoding.ids for encoding in gguf_tokenizer.build(file).encode_batch(texts)]
    assert Tokenizer.read(folder).encode(texts) == expected
