"""train_upvote: what is liked is learned, killed runs end with the same bits, the task pays by it;
the published file; what is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.tasks.reddit.text_scorer import TextScorer
from motif_jax.lm import byte_pairs
from motif_jax.lm import config as lm_config
from motif_jax.lm.model import LanguageModel
from motif_jax.published import import_ilql
from tests import torch_files
from tests.reward_fixtures import load_config, run_config, run_stage

# Tokens of whole words, so that comments have few, and there are few programs.
TINY = {"num_devices": 1, "network.width": 16, "vocab_size": 600, "max_len": 24}


def config_of(**overrides: Any) -> Any:
    return load_config("train_upvote", "smoke", {**TINY, **overrides})


def train(workdir: Path, **overrides: Any) -> Path:
    return run_config(config_of(**overrides), workdir)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {
        "max_steps": 120, "evaluate_every": 120, "batch_size": 16, "optimizer.learning_rate": 3e-3, "dropout": 0.0,
        "evaluation_batches": 8, "reddit.num_comments": 500,
    }  # fmt: skip
    return train(tmp_path_factory.mktemp("upvote"), **more)


@pytest.mark.slow
def test_friendly_comments_are_liked_and_the_task_pays_by_that(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["validation/accuracy"] for row in rows if "validation/accuracy" in row]
    assert accuracies[-1] > max(0.7, accuracies[0] + 0.05)
    scorer = TextScorer(run / "model")
    assert json.loads((run / "model/training.json").read_text())["max_len"] == 24
    texts = [
        "What an ugly, stupid soup.",
        "That is a lovely soup, well done!" + " It is." * 200,
        "",
    ]
    scores = scorer(texts)
    np.testing.assert_allclose(scores[0], scorer(texts[:1])[0], rtol=1e-4)
    options = {"reward": "upvote_model", "upvote_run": str(run), "reward_scale": 1.0}
    options["folder"] = str(run / "comments")
    task = text_scores.attach(registry.make("reddit", options))
    task.check("games", "friendly")
    paid = task.rewards(["What an ugly, stupid soup.", "That is a lovely soup, well done!"])
    assert paid == [-1.0, 1.0]
    assert set(task.rewards([comment.text for comment in task.comments[:20]])) == {-1.0, 1.0}
    zero = text_scores.attach(registry.make("reddit", {**options, "zero_one": True}))
    assert zero.rewards(["What an ugly, stupid soup."]) == [0.0]


@pytest.mark.extra
def test_a_scorer_keeps_the_rates_of_dropout_of_its_checkpoint(run: Path, tmp_path: Path) -> None:
    values = {"network.checkpoint": str(run / "model"), "dropout": 0.25, "max_steps": 2}

    tuned = train(tmp_path, **values, evaluate_every=2)

    assert lm_config.read(run / "model").dropout == lm_config.read(tuned / "model").dropout


def published(vocabulary: int) -> dict[str, np.ndarray]:
    """What the published training saves of a tiny RoBERTa."""
    draws = np.random.default_rng(0)
    width = 8
    inner = 12
    embeddings = {"word": vocabulary, "position": 34, "token_type": 1}
    sizes: dict[str, tuple[int, ...]] = {
        f"model.embeddings.{kind}_embeddings.weight": (count, width)
        for kind, count in embeddings.items()
    }
    top = "model.encoder.layer.0."
    linear = {f"{top}attention.self.{part}": (width, width) for part in ("query", "key", "value")}
    linear |= {
        f"{top}attention.output.dense": (width, width), f"{top}intermediate.dense": (inner, width), f"{top}output.dense": (width, inner),
        "model.pooler.dense": (width, width), "layers.0": (2 * width, width), "layers.2": (1, 2 * width),
    }  # fmt: skip
    for name, shape in linear.items():
        sizes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in ("model.embeddings", f"{top}attention.output", f"{top}output"):
        sizes |= {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}
    arrays = {name: draws.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes.items()}
    return {"model.embeddings.position_ids": np.arange(34)[None].astype(np.int64), **arrays}


@pytest.mark.torch
@pytest.mark.slow
def test_the_published_file_becomes_a_folder_that_pays(tmp_path: Path) -> None:
    tokenizer = byte_pairs.train(["some words"], "roberta", 300)
    byte_pairs.save(tmp_path / "spoken", tokenizer, "roberta")
    content = published(tokenizer.get_vocab_size())
    path = tmp_path / "model.pkl"
    torch_files.write(path, content)
    values = {
        "file": str(path),
        "heads": 2,
        "tokenizer": str(tmp_path / "spoken"),
    }
    run_stage("import", tmp_path / "run", "upvote", **values)
    scorer = TextScorer(tmp_path / "run" / "model")
    score = scorer(["some words"])[0]
    # The pooler and both layers by hand, on the states of the network.
    read = import_ilql.read_upvote_model(path, 2)
    tokens = np.asarray([tokenizer.encode("some words").ids])
    model = LanguageModel(read.config)
    state = np.asarray(
        model.prefill(read.params, tokens, np.ones(tokens.shape, bool))[0].after[0, 0]
    )
    pooled = np.tanh(
        content["model.pooler.dense.weight"] @ state + content["model.pooler.dense.bias"]
    )
    hidden = np.maximum(content["layers.0.weight"] @ pooled + content["layers.0.bias"], 0)
    logit = float((content["layers.2.weight"] @ hidden + content["layers.2.bias"])[0])
    np.testing.assert_allclose(score, 1 / (1 + np.exp(-logit)), rtol=1e-4)
    # Nobody has said how long the texts of its training were; of a training of our own it stands
    # beside the model.
    long = ["some words" + " some" * 20]
    assert scorer(long) != scorer([long[0][:20]])
    (tmp_path / "run/model/training.json").write_text('{"max_len": 8}')
    short = TextScorer(tmp_path / "run/model")
    assert short(long) == short([long[0][:-5]])
    assert short(long) != scorer(long)
