"""The base of frozen rewards of the text."""

from __future__ import annotations

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.rl.config import AgentConfig, AgentReward
from motif_jax.rl.intrinsic import ObservationSpec, RewardKind, RewardSetup
from motif_jax.rl.message_table import MessageTable, Values


class FrozenTextReward(RewardKind):
    """A reward that is a function `value` of a text's bytes, computed once for each distinct
    text.
    """

    reads_dir = False

    def __init__(self, setup: RewardSetup) -> None:
        field = setup.spec.text_field
        if field is None:
            raise UserError(
                f"config.reward.kind={setup.config.kind}: the environment shows no text to reward"
            )
        self.fields = (field,)
        self._table = MessageTable(self._compute, None)

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        registry.require_text(config.environment.name, spec.text_field)

    @classmethod
    def rates(cls, config: AgentReward) -> bool:
        return True

    def value(self, text: bytes) -> float:
        """The reward of a text in UTF-8, without zero bytes."""
        raise NotImplementedError

    def _compute(self, params: None, texts: np.ndarray) -> np.ndarray:
        """Rewards float32 [N] of texts uint8 [N, L]."""
        return np.array(
            [self.value(row.tobytes().replace(b"\0", b"")) for row in texts], np.float32
        )

    def lookup(self, texts: np.ndarray) -> Values:
        return self._table.lookup(texts)
