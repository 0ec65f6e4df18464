"""A run that is continued with another reward than it began with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from tests.play.agent_runs import recall_config
from tests.rl.runs import train
from tests.sets import extra

RARE_TEXTS = {
    "reward__kind": "tests.rl.outside_parts:RareTexts",
    "reward__intrinsic_coefficient": 0.5,
    "save_every_steps": 200,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (RARE_TEXTS, {}, r"holds reward, which this version and config do not use"),
        extra({}, RARE_TEXTS, r"has no reward: it has .*params"),
    ],
    ids=["too many items", "too few items"],
)
def test_a_checkpoint_with_the_items_of_another_reward_is_refused(
    first: dict[str, Any], later: dict[str, Any], message: str, tmp_path: Path
) -> None:
    train(tmp_path, recall_config(serial=True, **first, train_for_env_steps=200))
    (tmp_path / "config.json").unlink()

    with pytest.raises(UserError, match=message):
        train(tmp_path, recall_config(serial=True, **later, train_for_env_steps=400))
