"""Training a language model: tokens a second of the stage's loop against its compiled step alone.

    python -m motif_jax.launch --config=configs/benchmark.py:pretrain

Value: the offline trainer from its first batch to its last step on tokens on disk, with its loader, transfers, guards and metrics; the evaluations
and checkpoints at its ends are left out. Yardstick: the same program on one batch that lies on the devices. In turns; a minute on CPU. On a GPU
`configs/benchmark.py:pretrain_gpu` has the shape of GPT-2 medium in bfloat16, and says which share of the rate of large matrix products the
step reaches.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.benchmarks import _language, result
from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.writer import TokensWriter
from motif_jax.devices.parallel import DataParallel
from motif_jax.language import making, objectives, training
from motif_jax.language.adapting import Adaptation
from motif_jax.language.model import LanguageModel
from motif_jax.language.training import Batch
from motif_jax.offline.language_task import LanguageTask
from motif_jax.offline.task import Evaluation, Position
from motif_jax.offline.text_batches import TextBatches
from motif_jax.offline.trainer import OfflineTrainer, Settings
from motif_jax.support import config as checks
from motif_jax.support import resources, seeds
from motif_jax.support.errors import UserError

# GPT-2 medium, half a million tokens a step less a bit.
GPU_SIZE = {
    "width": 1024, "layers": 24, "heads": 16, "vocab_size": 50_257, "length": 1024, "batch_size": 64, "accumulate": 4, "steps": 16,
    "remat": True, "logits_chunk": 4096, "dtype": "bfloat16", "tokens": 20_000_000,
}  # fmt: skip
_SHAPE = ("width", "layers", "heads")


def options() -> ConfigDict:
    """Settings: the shape of a GPT-2, its batches, steps of a repeat, made-up tokens on disk."""
    return ConfigDict(
        {
            "width": 128, "layers": 4, "heads": 4, "vocab_size": 2048, "length": 128, "batch_size": 16, "accumulate": 1,
            "steps": 48, "chunk_steps": 8, "remat": False, "logits_chunk": placeholder(int), "dtype": "float32", "tokens": 500_000,
        }
    )  # fmt: skip


def check(config: ConfigDict) -> None:
    """Raises UserError for what cannot be measured."""
    chosen = config.options
    for key in ("vocab_size", "length", "accumulate", "chunk_steps", "tokens", *_SHAPE):
        checks.positive(config, f"options.{key}")
    checks.choice(config, "options.dtype", ("float32", "bfloat16"))
    parts = chosen.accumulate * jax.local_device_count()
    size, steps, width = chosen.batch_size, chosen.steps, chosen.width
    checks.require(size % parts == 0, "options.batch_size", size, f"a multiple of {parts}")
    checks.require(
        steps % chosen.chunk_steps == 0, "options.steps", steps, f"a multiple of {chosen.chunk_steps}"
    )
    checks.require(width % chosen.heads == 0, "options.width", width, f"a multiple of {chosen.heads}")
    enough = chosen.tokens > 2 * chosen.length
    checks.require(enough, "options.tokens", chosen.tokens, f"above {2 * chosen.length}, two windows")


class _Timed(LanguageTask):
    """Notes when its first batch is asked for, and when its last step is done."""

    started = ended = math.nan

    def batches(self, first: int, count: int) -> Batch:
        if first == 0:
            self.started = time.perf_counter()
        return super().batches(first, count)

    def evaluate(self, state: Any, shared: Any, position: Position) -> Evaluation:
        if position.step:
            self.ended = time.perf_counter()
        return super().evaluate(state, shared, position)


def training_config(config: ConfigDict) -> ConfigDict:
    """The stage's config with these options."""
    chosen, made = config.options, resources.config("pretrain_language_model", "smoke")
    made.seed = config.seed
    for key in (
        "length", "batch_size", "accumulate", "steps", "chunk_steps", "remat", "logits_chunk", "dtype"
    ):  # fmt: skip
        made[key] = chosen[key]
    made.texts, made.evaluate_every, made.evaluation_batches = "made-up tokens", chosen.steps, 1
    made.optimizer.warmup_steps = 0
    return made


def make_task(config: ConfigDict, folder: Path, parallel: DataParallel) -> _Timed:
    """A training of a fresh GPT-2 on made-up tokens, which it writes into `folder`."""
    chosen, made = config.options, training_config(config)
    end = {"start": 0, "pad": 0, "end": 0}
    sizes = making.Sizes(chosen.width, chosen.layers, chosen.heads, max_length=chosen.length)
    model = LanguageModel(
        making.make("gpt2", sizes, chosen.vocab_size, end), jnp.dtype(chosen.dtype), chosen.remat
    )
    draws = seeds.rng(config.seed, "tokens")
    with TokensWriter(folder, chosen.vocab_size, "none", item_columns={"prompt": "int32"}) as writer:
        writer.add(draws.integers(0, chosen.vocab_size, chosen.tokens), item_columns={"prompt": 0})
        writer.commit()
    tokens = objectives.Tokens(0, 0, 0, -1, (), chosen.vocab_size)
    dataset = TokensDataset(folder)
    batches = TextBatches(
        dataset,
        "causal",
        "windows",
        chosen.length,
        chosen.batch_size,
        tokens,
        config.seed,
        chosen.chunk_steps,
    )
    params = jax.device_get(jax.jit(model.init)(jax.random.key(config.seed)))
    adaptation = Adaptation(model, chunk=chosen.logits_chunk)
    return _Timed(made, adaptation, {"model": params}, {}, batches, batches, parallel, {})


def step_flops(task: LanguageTask) -> float:
    """Operations of the matrix products of a step, as they are without computing anything again."""
    adaptation = task.adaptation
    plain = dataclasses.replace(
        adaptation, model=dataclasses.replace(adaptation.model, remat=False), chunk=None
    )
    batch = jax.tree.map(lambda leaf: leaf[0], task.batches(0, 1))
    return _language.product_flops(
        lambda params, batch: training.gradient_sums(plain.sums, params, {}, batch),
        task.init_state().params,
        batch,
    )


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line.

    Raises:
      UserError: it was asked to stop before its end.
    """
    chosen = config.options
    parallel = DataParallel(jax.local_devices())
    with tempfile.TemporaryDirectory() as temporary:
        task = make_task(config, Path(temporary) / "tokens", parallel)
        trainer = OfflineTrainer(task, parallel, Settings(keep=1))
        counted = chosen.steps * chosen.batch_size * chosen.length
        runs = iter(range(config.repeats + 1))

        def stage() -> float:
            if not trainer.run(Path(temporary) / f"run_{next(runs)}"):
                raise UserError("the benchmark was stopped before the end of its training")
            return counted / (task.ended - task.started)

        stage()  # compiles
        values, alone = [], []
        for _ in range(config.repeats):
            alone.append(counted / _alone(trainer, task))
            values.append(stage())
        flops = step_flops(task)
    seconds = counted / float(np.median(alone)) / chosen.steps
    return result(
        "pretrain",
        "tokens/s",
        values,
        "the compiled step on a batch that lies on the devices",
        alone,
        chosen.to_dict(),
        parameters=sum(leaf.size for leaf in jax.tree.leaves(task.init_state().params)),
        devices=parallel.device_count,
        **_language.peak_share(config, flops / parallel.device_count, seconds),
    )


def _alone(trainer: OfflineTrainer, task: LanguageTask) -> float:
    """Seconds of as many steps as a run has."""
    count = trainer.steps_per_call or task.chunk_steps
    carry, batches = trainer.place(task.init_state()), task.batches(0, count)
    placed = trainer.parallel.put_batch(batches, task.batch_axes(batches))
    jax.block_until_ready((carry, placed))
    start = time.perf_counter()
    for _ in range(task.steps // count):
        carry, metrics = trainer.train(carry, placed)
    jax.block_until_ready((carry, metrics))
    return time.perf_counter() - start
