"""Measures inference alone: the policy's rows a second at the actors' batch sizes.

Value: model FLOP/s at the largest batch (all groups at once), transfers to and from the device
included. Baseline: the rate of a large matrix product, in turns. `rows_per_second` has every batch
size. It takes half a minute on CPU. On a GPU: `configs/benchmark.py:inference_gpu`.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, result
from motif_jax.rl import settings
from motif_jax.rl.acting_program import bucket_sizes, choose
from motif_jax.rl.system import System

GPU_SIZE = _agents.GPU_SIZE


def options() -> ConfigDict:
    """Options of the training, and `seconds` of each repeat and batch size."""
    return _agents.training_options(seconds=0.5)


def run(config: ConfigDict) -> dict[str, Any]:
    options = config.options
    training = _agents.training_config(options, config.seed)
    system = System(training)
    flops = _agents.network_flops(training)[0]
    actors = settings.actors_configs(training, 1)[0]
    rates: dict[int, list[float]] = {}
    peaks = []
    # The sizes of calls for which a training compiles its programs.
    sizes = [groups * actors.envs_per_group for groups in bucket_sizes(actors.groups)]
    calls = {rows: call_of(system, rows) for rows in sizes}
    for _ in range(config.repeats):
        for rows, call in calls.items():
            rates.setdefault(rows, []).append(
                rows * _agents.calls_per_second(call, options.seconds)
            )
        peaks.append(_agents.matrix_product_rate(options.dtype))
    system.close()
    largest = max(rates)
    return result(
        config,
        "model FLOP/s",
        [rate * flops for rate in rates[largest]],
        f"{options.dtype} matrix product on the same device",
        peaks,
        rows=largest,
        rows_per_second={str(rows): float(np.median(values)) for rows, values in rates.items()},
        model_flops_per_row=flops,
    )


def call_of(system: System, rows: int) -> Any:
    """A call that chooses actions for `rows` random observations."""
    network = system.network
    # As they were published for acting, and not the learner's.
    params = system.sources[0].inference.params()
    program = jax.jit(lambda *args: choose(network, *args))
    rng = np.random.default_rng(0)
    observation = {}
    for name in network.fields:
        field = network.spec.observation[name]
        observation[name] = rng.integers(0, 16, (rows, *field.shape)).astype(field.dtype)
    # The last row is padding, which no call of this benchmark has.
    table = network.initial_state(rows + 1)
    envs = np.arange(rows, dtype=np.int32)
    first = np.zeros(rows, np.uint8)
    key = jax.random.PRNGKey(0)

    def call() -> Any:
        choice, _ = program(params, table, envs, observation, first, key, np.int32(1))
        return jax.device_get(tuple(choice))

    return call
