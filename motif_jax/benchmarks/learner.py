"""Measures the learner alone, on a batch that is on its devices.

Value: model FLOP/s of the update (forward pass and gradient of every row, one row of bootstrap
included). Baseline: the rate of a large matrix product on the same device, in turns. It takes half
a minute on CPU. On a GPU: `configs/benchmark.py:learner_gpu`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, result
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.system import System

GPU_SIZE = _agents.GPU_SIZE


def options() -> ConfigDict:
    """Options of the training, and `seconds` of each repeat."""
    return _agents.training_options(seconds=2.0)


def run(config: ConfigDict) -> dict[str, Any]:
    options = config.options
    training = _agents.training_config(options, config.seed)
    system = System(training)
    # One batch of real games; the actors end with the stream, before the clock runs.
    with BatchStream(system) as stream:
        while (batch := stream.get()) is None:
            pass
    rows = (options.rollout + 1) * options.batch_size // options.rollout
    flops = rows * _agents.network_flops(training)[1]
    rates = []
    peaks = []
    for _ in range(config.repeats):
        rates.append(
            _agents.calls_per_second(lambda: _agents.update(system, batch), options.seconds)
        )
        peaks.append(_agents.matrix_product_rate(options.dtype))
    return result(
        config,
        "model FLOP/s",
        [rate * flops for rate in rates],
        f"{options.dtype} matrix product on the same device",
        peaks,
        updates_per_second=float(np.median(rates)),
        steps_per_second=float(np.median(rates)) * options.batch_size,
        model_flops_per_update=flops,
        batch_bytes=batch.num_bytes,
    )
