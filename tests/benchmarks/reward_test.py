"""The benchmark of reward training, at a small size: its line is whole and both sides agree."""

from __future__ import annotations

import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import reward


@pytest.mark.slow
def test_a_small_run_agrees_with_its_yardstick():
    options = reward.options()
    options.update(
        {"num_pairs": 300, "batch_size": 64, "steps": 4, "baseline_steps": 1, "message": "lt_cnn_small",
         "parity_steps": 10, "parity_batch_size": 32}
    )  # fmt: skip
    line = reward.run(ConfigDict({"seed": 3, "repeats": 1, "options": options}))
    assert line["benchmark"] == "reward"
    assert line["value"] > 0
    assert line["ratio"] == line["value"] / line["baseline"]["value"]
    assert 0 < line["distinct_share"] < 1
    assert line["target_ratio"] == min(10.0, 0.8 / line["distinct_share"])
    assert line["parameter_change_apart"] < 1e-3
