"""A run that is continued with another reward than it began with."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from tests.play.agent_runs import recall_config
from tests.rl.runs import train

RARE_TEXTS = {
    "reward__kind": "tests.rl.outside_parts:RareTexts",
    "reward__intrinsic_coefficient": 0.5,
    "save_every_steps": 200,
}


@pytest.mark.slow
def test_a_checkpoint_with_the_items_of_another_reward_is_refused(tmp_path: Path) -> None:
    train(tmp_path, recall_config(serial=True, **RARE_TEXTS, train_for_env_steps=200))
    (tmp_path / "config.json").unlink()

    with pytest.raises(UserError, match="holds reward, which this version and config do not use"):
        train(tmp_path, recall_config(serial=True, train_for_env_steps=400))
