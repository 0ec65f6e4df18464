"""Training a language agent on BabyAI-Text: steps a second of a run against its scoring and its updates alone.

    python -m motif_jax.launch --config=configs/benchmark.py:language_train

Value: the training's loop, which plays and learns in turns: games, prompts, tokens, scores, draws, batches, updates and their metrics.
Yardstick: the compiled scoring of one row of all environments and the compiled update of one batch, called again and again, as many of each as a run
makes. In turns; a minute on CPU, with the model of the quick run. `configs/benchmark.py:language_train_gpu`: Flan-T5-large in bfloat16 as
published (32 environments x 40 steps, 4 epochs of minibatches of 64), with fresh weights; the line says which share of the rate of large matrix products is
reached, the memory, and how many hours 1.5 million steps take.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from tokenizers import Tokenizer, models, pre_tokenizers

from motif_jax.benchmarks import _agents, _language, result
from motif_jax.benchmarks.language_update import memory_megabytes
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.language import config as language_configs
from motif_jax.language.tokens import FILE
from motif_jax.online import inference, settings
from motif_jax.online.batcher import DeviceBatch
from motif_jax.online.system import BatchStream, System
from motif_jax.support import config as checks
from motif_jax.support import resources

GPU_SIZE = {
    "model": "flan_t5_large", "environments": 32, "rollout": 40, "minibatch": 64, "microbatch": 16, "epochs": 4, "dtype": "bfloat16",
    "remat": True, "level": "BabyAI-MixedTrainLocal-v0", "observations": 3, "seconds": 20.0,
}  # fmt: skip
_PUBLISHED_STEPS = 1_500_000


def options() -> ConfigDict:
    """Settings: the model's shape, the level, environments and how they are run, and the update's sizes."""
    return ConfigDict(
        {
            "model": "quick_t5", "level": "BabyAI-GoToLocal-v0", "observations": 1, "environments": 32, "rollout": 8, "minibatch": 128,
            "microbatch": 128, "epochs": 2, "dtype": "float32", "remat": False, "serial": True, "seconds": 4.0,
        }
    )  # fmt: skip


def check(config: ConfigDict) -> None:
    """Raises UserError for what cannot be measured."""
    chosen = config.options
    checks.choice(config, "options.model", _language.SHAPES)
    checks.choice(config, "options.dtype", ("float32", "bfloat16"))
    for key in ("environments", "minibatch", "microbatch", "epochs", "observations"):
        checks.positive(config, f"options.{key}")
    even = chosen.serial or chosen.environments % 2 == 0
    checks.require(
        even, "options.environments", chosen.environments, "an even number for processes: two groups"
    )


def write_model(folder: Path, shape: str) -> None:
    """A folder of the model's config and a tokenizer of words, without weights: prompts have as many tokens as words and marks."""
    values = _language.SHAPES[shape]
    words = ["<pad>", "</s>", "<unk>", *sorted({word for action in ACTIONS for word in action.split()})]
    backend = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(folder / FILE))
    (folder / language_configs.FILE).write_text(json.dumps(values), encoding="utf-8")


def training_config(config: ConfigDict, folder: Path) -> ConfigDict:
    """The stage's config with these options and the model in `folder`, resolved."""
    chosen, made = config.options, resources.config("train_language_agent", "")
    made.seed = config.seed
    made.environment.name = chosen.level
    made.environment.babyai_text.observations = chosen.observations
    made.network.model, made.network.pretrained = str(folder), False
    made.network.dtype, made.network.remat = chosen.dtype, chosen.remat
    made.rollout, made.batch_size = chosen.rollout, chosen.rollout * chosen.environments
    made.actors.envs_per_worker = chosen.environments
    made.serial = chosen.serial
    made.actors.groups_per_worker = 1 if chosen.serial else 2
    made.algorithm.update(
        {"epochs": chosen.epochs, "minibatch_size": chosen.minibatch, "microbatch_size": chosen.microbatch}
    )
    made.devices.learner = made.devices.actor = "0"
    settings.configure_jax(made)
    return settings.check(made)


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    chosen = config.options
    with tempfile.TemporaryDirectory() as temporary:
        write_model(Path(temporary), chosen.model)
        training = training_config(config, Path(temporary))
        system = System(training)
        rates, alone, parts = [], [], []
        chooser = jax.jit(functools.partial(inference.choose, system.network))
        with BatchStream(system) as stream:
            batch = _play(system, stream, 0.0)[1]
            # Lengths of prompts differ from batch to batch: what is compiled is compiled before anything is measured.
            _play(system, stream, chosen.seconds)
            for _ in range(config.repeats):
                rate, batch = _play(system, stream, chosen.seconds)
                rates.append(rate)
                scoring, learning = _alone(system, batch, chooser)
                parts.append((scoring, learning))
                alone.append(1.0 / (1.0 / scoring + 1.0 / learning))
        scoring, learning = (float(np.median([part[i] for part in parts])) for i in range(2))
        flops = _flops_per_step(system, batch)
        memory = memory_megabytes()
    rate = float(np.median(rates))
    return result(
        "language_train",
        "steps/s",
        rates,
        "scoring alone and updates alone, in turns on the device",
        alone,
        chosen.to_dict(),
        scoring_steps_per_second=scoring,
        update_steps_per_second=learning,
        prompt_tokens=int(batch.trajectories.observation["tokens"].shape[-1]),
        memory_megabytes=memory,
        hours_for_published_steps=_PUBLISHED_STEPS / rate / 3600,
        published="8 A100 for 20 h (job limit) for as many steps of Flan-T5-large",
        **_language.peak_share(config, flops, 1.0 / rate),
    )


def _play(system: System, stream: BatchStream, seconds: float) -> tuple[float, DeviceBatch]:
    """Trains for a while, whole updates; returns steps a second and the last batch."""
    newest: DeviceBatch | None = None
    steps, start = 0, time.perf_counter()
    while newest is None or time.perf_counter() - start < seconds:
        batch = stream.get()
        if batch is None:
            continue
        system.learner.step(batch)
        steps, newest = steps + batch.num_steps, batch
    system.learner.settle()
    return steps / (time.perf_counter() - start), newest


def _alone(system: System, batch: DeviceBatch, chooser: Any) -> tuple[float, float]:
    """Steps a second of scoring the batch's rows again, and of updating by it again."""
    call, rows = _scoring(system, batch, chooser)

    def learn() -> Any:
        system.learner.step(batch)
        system.learner.settle()
        return system.learner.state.step

    # As the run does it: every row but the last, which is the next batch's first.
    return rows * _agents.calls_per_second(call, 2.0), batch.num_steps * _agents.calls_per_second(learn, 2.0)


def _scoring(system: System, batch: DeviceBatch, chooser: Any) -> tuple[Any, int]:
    """Scores of one row of the batch's environments and its number of rows."""
    network = system.network
    fields = jax.device_get({name: batch.trajectories.observation[name] for name in network.fields})
    row = {name: values[0, 0] for name, values in fields.items()}
    envs = np.arange(len(batch.trajectories.action[0, 0]), dtype=np.int32)
    table, first, key = (
        network.initial_state(len(envs) + 1),
        np.zeros(len(envs), np.uint8),
        jax.random.PRNGKey(0),
    )

    def call() -> Any:
        params = system.sources[0].inference.params()
        choice, _ = chooser(params, table, envs, row, first, key, np.int32(1))
        return jax.device_get(tuple(choice))

    return call, len(envs)


def _flops_per_step(system: System, batch: DeviceBatch) -> float:
    """Operations of the matrix products of scoring and learning from a step, without what is computed again."""
    from motif_jax.algorithms.registry import algorithm_of

    network, training = system.network, system.config
    update = algorithm_of(training).make_update(network, system.optimizer, training)
    data = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch.trajectories)
    state = jax.eval_shape(lambda: system.learner.state)
    learning = _language.product_flops(update, state, data)
    tokens = data.observation["tokens"]
    one = {"tokens": jax.ShapeDtypeStruct((1, *tokens.shape[1:]), tokens.dtype)}
    first = jax.ShapeDtypeStruct((1, tokens.shape[1]), bool)
    scoring = _language.product_flops(network.apply, state.params, one, data.initial_state, first)
    return scoring / tokens.shape[1] + learning / batch.num_steps
