"""The stage that makes small language models: what it learns, on how many devices, and killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import lm as language
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import TrainingPosition
from motif_jax.lm import folder as folders
from motif_jax.lm import masked_head, pretrain_language_model
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section
from tests import texts
from tests.lm.pretraining import config_of, train
from tests.sets import extra

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a GPT-2 of wide enough layers for nf4."""
    values = {"model.width": 64, "tokenizer.vocab_size": 290, "steps": 30, "evaluate_every": 15}
    return train(text, tmp_path_factory.mktemp("run") / "r", **values)


LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", {"dropout": 0.1, "objective": "spans", "length": 24}),
    "t5 of items": ("t5", {"objective": "prefix", "packing": "items"}),
    "roberta of items": ("roberta", {"packing": "items", "accumulate": 2}),
    "llama": ("llama", {"packing": "items", "dtype": "bfloat16", "remat": True, "logits_chunk": 7}),
}


def perplexities(run: Path) -> list[float]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["validation/perplexity"] for row in rows]


def measured(workdir: Path, text: Path, **values: Any) -> float:
    """The perplexity of a model that is opened anew."""
    config = read_section(LanguageModelConfig, config_of(text, **values))
    run = pretrain_language_model.build(config, workdir, DataParallel(jax.local_devices()[:1]))
    evaluation = run.task.evaluate(run.task.init_state(), None, TrainingPosition())
    return evaluation.row["validation/perplexity"]


def test_the_learned_model_has_the_perplexity_of_the_last_evaluation(
    trained: Path, text: Path
) -> None:
    curve = perplexities(trained)
    assert curve[-1] < 0.8 * curve[0]
    values = {
        "model.folder": str(trained / "model"),
        "tokens": str(trained / "tokens"),
        "texts": None,
    }
    assert measured(trained, text, **values) == pytest.approx(curve[-1], rel=1e-5)


@pytest.mark.parametrize("name", [extra(name) for name in LEARNED])
def test_every_architecture_and_objective_learns(name: str, text: Path, tmp_path: Path) -> None:
    architecture, values = LEARNED[name]
    more = {"tokenizer.vocab_size": 370, "optimizer.learning_rate": 0.01}
    values = {"model.architecture": architecture, **more, **values}
    if values.get("packing") == "items" and architecture != "roberta":
        text = texts.write(tmp_path, prompts=True)
        values = {"length": 48, **values}
    run = train(text, tmp_path / "run", **values)
    curve = perplexities(run)
    assert curve[-1] < curve[0]
    opened = folders.read(run / "model")
    assert opened.config.architecture == architecture
    assert opened.config.dropout.attention == values.get("dropout", 0.0)
    assert (masked_head.load(run / "model") is not None) == (architecture == "roberta")
    assert np.isfinite(language.load(run / "model").states(["the red key"])[0]).all()


@pytest.mark.extra
@pytest.mark.parametrize("base", [extra("float32"), "nf4"])
def test_additions_alone_are_learned_and_merged(
    trained: Path, text: Path, tmp_path: Path, base: str
) -> None:
    lora = {"lora.patterns": "*/attention/*", "lora.rank": 2, "lora.base": base}
    values = {"model.folder": str(trained / "model"), "dropout": 0.1, **lora}
    run = train(text, tmp_path / "r", **values, **{"optimizer.learning_rate": 0.003, "steps": 8})
    curve = perplexities(run)
    assert curve[-1] < curve[0]
    opened = folders.read(trained / "model")
    assert folders.read(run / "model").config == opened.config
    before = opened.params
    after = folders.read(run / "model").params
    block = after["decoder"]["block_0"]
    block_before = before["decoder"]["block_0"]
    np.testing.assert_array_equal(after["embedding"], before["embedding"])
    if base == "float32":
        assert curve[0] == pytest.approx(perplexities(trained)[-1], rel=1e-5), "zero B is the base"
        np.testing.assert_array_equal(
            *(layers["feed_forward"]["down"]["kernel"] for layers in (block, block_before))
        )
    change = block["attention"]["query"]["kernel"] - block_before["attention"]["query"]["kernel"]
    rank = np.linalg.matrix_rank(change, tol=1e-4 * np.linalg.norm(change, 2))
    assert rank == 2 if base == "float32" else np.abs(change).max() > 0
    perplexity = measured(tmp_path / "again", text, **{"model.folder": str(run / "model")})
    assert perplexity == pytest.approx(curve[-1], rel=1e-4), "of the merged model"
