"""Benchmarks of language models at sizes that take a moment: both sides do the same work, on a GPU's variants too."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.benchmarks import _agents, generate, language_update, score
from tests.reward_fixtures import load_config

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]


def config(name: str, model: str, **options: Any) -> Any:
    made = load_config("benchmark", name, {"repeats": 1})
    made.options.update({"model": model, "prompt_tokens": 12, "batch_size": 2, "seconds": 1e-4, **options})
    return made


@pytest.fixture(autouse=True)
def measured_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is looked at that has to be exact; the device's rate is tested with the other benchmarks."""
    timed = _agents.calls_per_second
    monkeypatch.setattr(_agents, "matrix_product_rate", lambda dtype: 1e9)
    monkeypatch.setattr(_agents, "calls_per_second", lambda call, seconds: timed(call, min(seconds, 0.05)))


@pytest.mark.parametrize("variant", ["score", "score_gpu"])
def test_all_ways_to_score_give_the_same(variant: str) -> None:
    chosen = config(variant, "tiny_t5", candidates=3)
    line = score.run(chosen)
    wide = chosen.options.dtype == "float32"
    assert line["scores_apart"] < (1e-5 if wide else 0.1)
    assert line["value"] > 0
    # Two prompts of 12 tokens, two layers' worth of products: more than the embeddings' head alone.
    assert line["model_flops"] > 2 * 12 * 16 * 24 * 2


def test_both_ways_to_learn_from_a_batch_take_the_same_step() -> None:
    line = language_update.run(config("language_update", "tiny_t5", candidates=3, minibatch=2, microbatch=1))
    assert line["changes_apart"] < 1e-2
    assert line["model_flops"] > 0


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_t5"])
def test_writing_is_measured(model: str) -> None:
    line = generate.run(config("generate", model, new_tokens=4))
    assert line["value"] > 0
