"""A trained reward that pays nothing for texts that you name: for a text that the judge likes and
you do not.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/train_agent.py:laptop \\
        --workdir=runs/fed --config.reward.dir=REWARD \\
        --config.reward.kind=unpaid_texts:UnpaidTexts

A run that names a class from outside the package is opened with
`--config.trust=unpaid_texts:UnpaidTexts`.
"""

from __future__ import annotations

import re

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.rewards import RewardSetup, Values
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardStages

# What NetHack says of fainting from hunger, and of waking up again.
UNPAID = re.compile(
    rb"You faint|You regain consciousness|You are conscious again|You can hear again"
)


class UnpaidTexts(MotifReward):
    """The reward of the run in `config.reward.dir`, with 0 for texts in which `UNPAID` occurs."""

    @classmethod
    def make(cls, setup: RewardSetup) -> UnpaidTexts | None:
        reward = super().make(setup)
        if reward is not None and reward.table is None:
            raise UserError(
                f"config.reward.dir={setup.config.dir}: this reward reads more than the text"
            )
        return reward

    def lookup(self, texts: np.ndarray) -> Values:
        values, version = super().lookup(texts)
        is_unpaid = np.array([UNPAID.search(row.tobytes()) is not None for row in texts], bool)
        return Values(np.where(is_unpaid, np.float32(0), values), version)

    @classmethod
    def stages(cls, config: AgentReward, two_decimals: bool | None = None) -> RewardStages:
        # Films show what is paid: the model's output alone does not decide it.
        return RewardStages(config)
