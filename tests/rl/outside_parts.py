"""An update algorithm, as somebody outside the package would write it, and a reward that breaks the
one of docs/examples/rare_texts.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from docs.examples.rare_texts import RareTexts
from motif_jax.core.errors import UserError
from motif_jax.rewards import Values
from motif_jax.rl.algorithms.algorithm import Algorithm
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig

LEARNING_RATE = 1e-3


class ReinforceState(NamedTuple):
    params: Any
    step: jax.Array
    baseline: jax.Array
    reward_params: Any = ()


class Reinforce(Algorithm):
    """The likelihood ratio with the mean reward as baseline: no critic, no optimiser state."""

    @classmethod
    def check(cls, config: AgentConfig, network: Any) -> None:
        epochs = config.algorithm.epochs
        if epochs != 1:
            raise UserError(f"config.algorithm.epochs={epochs}: must be 1 with this algorithm")

    def init(self, key: jax.Array) -> ReinforceState:
        return ReinforceState(self.network.init(key), jnp.zeros((), jnp.int32), jnp.zeros(()))

    def update(
        self, state: ReinforceState, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[ReinforceState, dict[str, jax.Array]]:
        advantage = batch.reward - state.baseline

        def loss(params: Any) -> jax.Array:
            logits, *_ = self.network.apply(
                params, batch.observation, batch.initial_state, batch.first
            )
            chosen = jnp.take_along_axis(
                jax.nn.log_softmax(logits[:-1]), batch.action[..., None].astype(jnp.int32), -1
            )
            return -jnp.mean(chosen[..., 0] * advantage)

        value, gradient = jax.value_and_grad(loss)(state.params)
        value, gradient, mean = jax.lax.pmean((value, gradient, jnp.mean(batch.reward)), axis_name)
        params = jax.tree.map(lambda p, g: p - LEARNING_RATE * g, state.params, gradient)
        baseline = 0.9 * state.baseline + 0.1 * mean
        new = state._replace(params=params, step=state.step + 1, baseline=baseline)
        return new, {"loss/total": value}


class Broken(RareTexts):
    """Its third batch has rewards that are no numbers."""

    def lookup(self, texts: np.ndarray) -> Values:
        values, version = super().lookup(texts)
        return Values(values * np.float32(np.nan) if version == 2 else values, version)
