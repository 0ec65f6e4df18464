"""A method of one's own for agents that speak: V by Gumbel regression (extreme Q-learning, Garg et
al. 2023).

    PYTHONPATH=docs/examples python -m motif_jax.launch \\
        --config=configs/train_text.py:wordle_ilql --workdir=runs/extreme \\
        --config.data=runs/games --config.method.name=text_method:ExtremeQ
"""

import dataclasses

import jax
import jax.numpy as jnp

from motif_jax.ilql.methods import Rule

TEMPERATURE, MOST = 1.0, 5.0


@dataclasses.dataclass(frozen=True)
class ExtremeQ(Rule):
    """Q, targets and policy are those of ILQL; V estimates the soft maximum of the target Q in the
    place of an expectile.
    """

    def losses(self, batch, estimates, method):
        sums = super().losses(batch, estimates, method)
        errors = jax.lax.stop_gradient(estimates.target_q) - estimates.values[:, :-1]
        scaled = jnp.minimum(errors / TEMPERATURE, MOST)
        return sums._replace(
            v=jnp.sum(jnp.where(batch.action_mask, jnp.exp(scaled) - scaled - 1, 0.0))
        )
