"""Both sides of a benchmark do the same work, on tiny sizes; those of a GPU have larger ones."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import jax
import pytest

from motif_jax.benchmarks import _language, language_update
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.glam.agent import LanguageAgent
from tests import stage_inputs
from tests.benchmarks.lines import line_of
from tests.reward_fixtures import load_config
from tests.sets import extra

HERE = "motif_jax.benchmarks"
pytestmark = pytest.mark.usefixtures("clock")

SIZES = {"width": 16, "layers": 1, "vocabulary": 32}
WORDS = {"prompt_tokens": 12, "batch_size": 2}
# Those whose programs take longest to compile, and a GPU's, which are the CPU's with other models
# and sizes.
LONG = {"language_update", "text_train", "score_gpu", "generate_gpu"}
REAL: dict[str, dict[str, Any]] = {
    "reward": {
        "num_pairs": 24,
        "batch_size": 4,
        "steps": 3,
        "baseline_steps": 2,
        "message": "lt_cnn_small",
    },
    "score": {**WORDS, "model": "tiny_t5", "candidates": 3},
    "score_gpu": {**WORDS, "model": "tiny_t5", "candidates": 3},
    "language_update": {
        **WORDS,
        "model": "tiny_t5",
        "candidates": 3,
        "minibatch": 2,
        "microbatch": 1,
    },
    "generate": {**WORDS, "model": "tiny_t5", "new_tokens": 4},
    "generate_gpu": {**WORDS, "model": "tiny_gpt2", "new_tokens": 4},
    "text_train": {**SIZES, "batch_size": 2, "length": 40, "micro_batches": 3},
}


class Memory(NamedTuple):
    """The numbers that a benchmark reads of a compiled program's memory."""

    argument_size_in_bytes: float = 2e6
    output_size_in_bytes: float = 3e6
    temp_size_in_bytes: float = 5e6
    alias_size_in_bytes: float = 1e6


class Program:
    """A program as jax wraps it, lowers it and compiles it, which is never compiled."""

    def lower(self, *shapes: Any) -> Self:
        return self

    def compile(self) -> Self:
        return self

    def memory_analysis(self) -> Memory:
        return Memory()


class Uncompiled(DataParallel):
    """Wraps nothing, since a step's compilation would take longest."""

    def wrap(self, *arguments: Any, **options: Any) -> Any:
        return Program()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [extra(name) if name in LONG or name.endswith("_gpu") else name for name in REAL]
)
def test_both_sides_of_a_benchmark_do_the_same_work(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(f"{HERE}.text_train.DataParallel", Uncompiled)
    monkeypatch.setattr(_language, "usable_cores", lambda: 6)

    line = line_of(name, **REAL[name])

    # Another machine may round bfloat16 otherwise.
    assert line.pop("scores_apart", 0) < (0.1 if name == "score_gpu" else 1e-5)
    assert line.pop("gradients_apart", line.pop("changes_apart", 0)) < 1e-2
    assert line["value"] > 0
    assert line["baseline"]["value"] > 0
    if name == "text_train":
        assert line["step"]["memory_megabytes"] == 2 + 3 + 5 - 1
        assert line["flops_ratio"] > 1


def test_the_baseline_update_runs_the_prompt_with_every_action() -> None:
    assert language_update.RowForEachAction.logits_and_values is not LanguageAgent.logits_and_values


@pytest.mark.parametrize(
    "name", [name for name in stage_inputs.variants("benchmark") if name.endswith("_gpu")]
)
def test_a_gpu_has_the_same_options_with_larger_values(name: str) -> None:
    options = load_config("benchmark", name).options
    plain = load_config("benchmark", name.removesuffix("_gpu")).options
    assert list(options) == list(plain)
    sizes = [
        key for key, value in plain.items() if isinstance(value, int) and options[key] != value
    ]
    assert all(options[key] > plain[key] for key in sizes)
    assert options.to_dict() != plain.to_dict()


def test_model_flops_of_an_update_leave_recomputation_out() -> None:
    config = load_config("benchmark", "language_update")
    config.options.update({**REAL["language_update"], "remat": True})
    agent = language_update.agent(config.options, config.seed)
    algorithm = language_update.algorithm_of(config, agent)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    data = language_update.batch(config.options, agent.model.config.vocab_size, config.seed)

    flops = language_update.update_flops(config, state, data)

    assert flops < _language.product_flops(algorithm.update, state, data)
    config.options.remat = False
    assert flops == language_update.update_flops(config, state, data)


@pytest.mark.slow
def test_memory_of_an_update_is_taken_before_the_baseline_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load_config("benchmark", "language_update", {"repeats": 1})
    config.options.update(REAL["language_update"])
    runs: list[str] = []

    class Device:
        """Its peak is a million bytes for each program that has run."""

        device_kind = "made up"

        def memory_stats(self) -> dict[str, int]:
            return {"peak_bytes_in_use": 1_000_000 * len(runs)}

    def compiled(call: Any, state: Any, data: Any) -> Any:
        def run() -> tuple[Any, dict[str, float]]:
            runs.append("program")
            changed = jax.tree.map(lambda leaf: leaf + 1, state.params)
            return state._replace(params=changed), {}

        return run

    monkeypatch.setattr(_language, "compiled", compiled)
    monkeypatch.setattr(language_update, "update_flops", lambda *_: 1.0)
    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])

    line = language_update.run(config)

    assert line["memory_megabytes"] == 1.0


@pytest.mark.extra
def test_a_training_step_of_ilql_is_run_on_request() -> None:
    line = line_of("text_train", **REAL["text_train"], step="run", baseline=False)

    assert line["step"]["tokens_per_second"] > 0
    # Three micro-batches in a step.
    assert line["step"]["model_flops"] == 3 * line["model_flops"]
    assert line["step"]["peak_share"] > 0
