"""A reward that changes and an update algorithm, as somebody outside the package would write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.rewards import BatchMessages, RewardKind, RewardSetup, Values
from motif_jax.rl.algorithms.algorithm import UpdatePlan
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentReward


class Familiar(RewardKind):
    """Pays a text by how often it was met before: nothing at first, towards 1 later."""

    keeps_state = True

    def __init__(self, field: str) -> None:
        self.fields = (field,)
        self.description = "what is familiar"
        self.counts: dict[bytes, int] = {}
        self.version = 0

    @classmethod
    def check(cls, config: AgentReward) -> None:
        if config.dir is not None:
            raise UserError(f"config.reward.dir={config.dir}: must be None with this kind")

    @classmethod
    def make(cls, setup: RewardSetup) -> Familiar:
        assert setup.spec.text_field is not None
        return cls(setup.spec.text_field)

    def lookup(self, texts: np.ndarray) -> Values:
        met = np.array([self.counts.get(text.tobytes(), 0) for text in texts], np.float32)
        return Values(met / (met + 100), self.version)

    def observe(self, met: BatchMessages) -> None:
        counts = dict(self.counts)
        for text, count in zip(met.texts, met.counts.tolist(), strict=True):
            counts[text.tobytes()] = counts.get(text.tobytes(), 0) + count
        self.counts = counts
        self.version = self.version + 1

    def state(self) -> dict[str, Any]:
        texts = sorted(self.counts)
        rows = np.array([np.frombuffer(text, np.uint8) for text in texts]).reshape(len(texts), -1)
        counts = np.array([self.counts[text] for text in texts], np.int64)
        return {"texts": rows, "counts": counts, "version": np.int64(self.version)}

    def restore(self, state: dict[str, Any]) -> None:
        counts = state["counts"].tolist()
        self.counts = {row.tobytes(): count for row, count in zip(state["texts"], counts, strict=True)}
        self.version = int(state["version"])

    def metrics(self) -> dict[str, float]:
        return {"familiar/texts": float(len(self.counts))}


LEARNING_RATE = 1e-3


class ReinforceState(NamedTuple):
    params: Any
    step: jax.Array
    baseline: jax.Array
    reward_params: Any = ()


class Reinforce:
    """The likelihood ratio with the mean reward as baseline: no critic, no optimiser state."""

    def check(self, plan: UpdatePlan) -> None:
        epochs = plan.algorithm.epochs
        if epochs != 1:
            raise UserError(f"config.algorithm.epochs={epochs}: must be 1 with this algorithm")

    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> ReinforceState:
        del optimizer
        return ReinforceState(network.init(key), jnp.zeros((), jnp.int32), jnp.zeros(()))

    def make_update(self, network: Any, optimizer: Any, plan: UpdatePlan, *, reward_fn: Any = None) -> Any:
        del optimizer, plan, reward_fn

        def update(
            state: ReinforceState, batch: TrajectoryBatch, *, axis_name: str | None = None
        ) -> tuple[ReinforceState, dict[str, jax.Array]]:
            advantage = batch.reward - state.baseline

            def loss(params: Any) -> jax.Array:
                logits, *_ = network.apply(params, batch.observation, batch.initial_state, batch.first)
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

        return update


class Broken(Familiar):
    """Its third batch has rewards that are no numbers."""

    def lookup(self, texts: np.ndarray) -> Values:
        values, version = super().lookup(texts)
        return Values(values * np.float32(np.nan) if version == 2 else values, version)
