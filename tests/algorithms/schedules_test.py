"""Learning rates over a training, and which settings of them are refused."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.algorithms import schedules
from motif_jax.support.errors import UserError
from tests.agents import agent_config


def test_learning_rates() -> None:
    config = agent_config().optimizer
    config.learning_rate, config.warmup_steps, config.final_fraction = 1.0, 4, 0.1
    for kind, end, middle in (("constant", 1.0, 1.0), ("linear", 0.1, 0.55), ("cosine", 0.1, 0.55)):
        config.schedule = kind
        rate = schedules.make_schedule(config, 104)
        np.testing.assert_allclose([rate(t) for t in range(4)], [0.25, 0.5, 0.75, 1.0], rtol=1e-6)
        np.testing.assert_allclose(
            [rate(4), rate(54), rate(104), rate(500)], [1, middle, end, end], rtol=1e-6
        )
    config.warmup_steps = 0
    assert schedules.make_schedule(config, 10)(0) == 1


def test_an_unknown_schedule_is_named() -> None:
    config = agent_config()
    schedules.check(config)
    config.optimizer.schedule = "step"
    with pytest.raises(UserError, match=r"config.optimizer.schedule='step'"):
        schedules.check(config)
