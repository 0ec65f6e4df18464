"""A run that is gone on with by another reward than it began with."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from tests.play.agent_runs import recall_config
from tests.rl.runs import train

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_what_no_part_takes_up_is_refused(tmp_path: Path) -> None:
    kind = "tests.rl.outside_parts:Familiar"
    familiar = {"reward__kind": kind, "reward__intrinsic_coefficient": 0.5, "save_every_steps": 200}
    for folder, first, later, said in (
        (tmp_path / "one", familiar, {}, r"holds reward, which this version and config do not use"),
        (tmp_path / "other", {}, familiar, r"has no reward: it has .*params"),
    ):
        train(folder, recall_config(serial=True, **first, train_for_env_steps=200))
        (folder / "config.json").unlink()
        with pytest.raises(UserError, match=said):
            train(folder, recall_config(serial=True, **later, train_for_env_steps=400))
