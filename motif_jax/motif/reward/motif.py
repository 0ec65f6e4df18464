"""The frozen reward of a run of train_reward: of the text alone, or of whole observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import checkpoints
from motif_jax.core.devices.parallel import cpu_device
from motif_jax.core.errors import UserError
from motif_jax.motif.pairs import threshold
from motif_jax.motif.reward.normalisation import Normalisation
from motif_jax.motif.reward.reward_function import FILE_SUFFIX, open_reward
from motif_jax.motif.reward.reward_model import RewardModel, read_architecture
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardKind, RewardSetup, RewardStages
from motif_jax.rl.message_table import MessageTable, Values


class MotifReward(RewardKind):
    """Kind 'motif': evaluation `step` of the run in `dir`, normalised and thresholded as
    `normalise` and `quantile` say.

    Without `dir` there is no intrinsic reward. `table` is that of `lookup`; None where `in_step` is
    used.
    """

    def __init__(
        self, trained: RewardModel, normalisation: Normalisation, setup: RewardSetup
    ) -> None:
        self._trained = trained
        self._normalisation = normalisation
        self.description = _description(trained, normalisation, setup.config)
        self.table: MessageTable | None = None

        spec = setup.spec
        if trained.network.architecture.message_only:
            if spec.text_field is None:
                raise UserError(
                    f"config.reward.dir={trained.folder}: the environment shows no text to reward"
                )
            self.fields = (spec.text_field,)
            # Not the learner's device unless it is asked for: new texts would wait behind an
            # update.
            params = jax.device_put(trained.params, setup.device or cpu_device())
            self.table = MessageTable(self._of_texts, params, trained.step)
            return

        # A reward of whole observations seldom meets one twice: it is computed in the update,
        # without a table.
        self.fields = trained.network.architecture.fields
        self.in_step = self._of_observations
        self.params = trained.params

    @classmethod
    def check(cls, config: AgentReward) -> None:
        """Reads the evaluation that `step` means, so that a missing one is reported before a run
        folder is made.
        """
        if config.dir:
            # Raises where its statistics are not finite, or have no such quantile.
            open_reward(config.dir, config.step).normalisation(config.normalise, config.level)
        elif config.intrinsic_coefficient:
            raise UserError(
                f"config.reward.intrinsic_coefficient={config.intrinsic_coefficient} needs a trained reward: give "
                "--config.reward.dir=DIR, or --config.reward.intrinsic_coefficient=0 to learn from the task alone"
            )

    @classmethod
    def required_fields(cls, config: AgentReward) -> tuple[str, ...]:
        """Observation fields that the reward reads, the text as 'message'; of a run folder it reads
        only config.json.
        """
        if not config.dir:
            return ()
        if Path(config.dir).suffix == FILE_SUFFIX:
            return open_reward(config.dir).network.architecture.fields
        return read_architecture(config.dir)[0].fields

    @classmethod
    def stages(cls, config: AgentReward, two_decimals: bool | None = None) -> RewardStages:
        trained = open_reward(str(config.dir), config.step)
        # The raw output, which needs neither statistics nor threshold.
        of_output = replace(config, normalise=False, quantile=None, threshold="quantile")
        pay = trained.normalisation(config.normalise, config.level, two_decimals)
        return RewardStages(of_output, trained.normalisation().normalise, pay)

    @classmethod
    def step_to_pin(cls, config: AgentReward) -> int | None:
        return open_reward(config.dir, config.step).step if config.dir else None

    @classmethod
    def rates(cls, config: AgentReward) -> bool:
        return bool(config.dir)

    @classmethod
    def files(cls, config: AgentReward) -> tuple[Path, ...]:
        if not config.dir:
            return ()
        if Path(config.dir).suffix == FILE_SUFFIX:
            return (Path(config.dir),)
        # One file stands for the evaluation: it has its random id.
        return (Path(config.dir) / "checkpoints" / str(config.step) / checkpoints.ID,)

    @classmethod
    def make(cls, setup: RewardSetup) -> Self | None:
        config = setup.config
        if not config.dir:
            return None
        trained = open_reward(config.dir, config.step)
        normalisation = trained.normalisation(config.normalise, config.level, setup.two_decimals)
        return cls(trained, normalisation, setup)

    def start(self) -> None:
        if self.table is not None:
            self._trained.compile_messages(self.table.params)

    def lookup(self, texts: np.ndarray) -> Values:
        return super().lookup(texts) if self.table is None else self.table.lookup(texts)

    def _of_texts(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Paid rewards float32 [N] of texts uint8 [N, L]."""
        raw = self._trained.of_messages(params, texts)
        return np.asarray(self._normalisation(raw), np.float32)

    def _of_observations(self, params: Any, observation: Mapping[str, jax.Array]) -> jax.Array:
        """Paid rewards float32 [T, B] of observations [T, B, ...]."""
        chex.assert_equal_shape_prefix([observation[name] for name in self.fields], 2)
        # The network reads rows [T * B, ...]: a reward has no memory.
        leading = observation[self.fields[0]].shape[:2]
        rows = {
            name: observation[name].reshape(-1, *observation[name].shape[2:])
            for name in self.fields
        }
        values = self._normalisation(self._trained.raw(params, rows))
        # A constant of the agent's loss.
        return jax.lax.stop_gradient(jnp.reshape(values, leading))


def _description(trained: RewardModel, normalisation: Normalisation, config: AgentReward) -> str:
    """Which evaluation pays above which threshold, for the first line of a training."""
    # A reward that was learned online is read from a checkpoint of the agent's run, and has its own
    # threshold, which is not a quantile.
    moment = "checkpoint" if trained.learned_online else "evaluation"
    limit = "no threshold"
    if normalisation.threshold is not None:
        limit = f"threshold {normalisation.threshold:g}"
        if not trained.learned_online:
            is_advised = config.level == threshold.AUTO
            limit += " (auto)" if is_advised else f" (quantile {config.level:g})"
    return f"{trained.folder}, {moment} {trained.step}, {limit}"
