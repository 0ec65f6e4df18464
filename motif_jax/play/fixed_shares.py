"""The best policy that reads nothing: the shares of the actions, equal at every step, with the
greatest return.

Method: the policy gradient of REINFORCE (Williams 1992) on the logits of the shares, with the mean
return as the baseline. The shares are those of the mean logits of the last rounds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.progress import Progress
from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.envs.spec import Environment
from motif_jax.rl.actors.policies import FixedPolicy

# In GLAM's quick run the best of drawn shares are worth .455, those of this gradient .502.
ROUNDS = 24
EPISODES = 240  # a round
LEARNING_RATE = 8.0
AVERAGED_ROUNDS = 6  # the last ones
# Options that change observations alone, which this policy does not read.
_UNREAD = (
    "tokenizer",
    "prompt_tokens",
    "special_tokens",
    "joint_actions",
    "prompt_turn",
    "fields",
    "change",
)


def fit(name: str, options: Mapping[str, Any], seed: int) -> tuple[float, ...]:
    """Shares of the actions, fitted on 5,760 episodes (45 s in BabyAI-Text); UserError where not
    all are always allowed.
    """
    # The cache's key: the same games for all options that this policy does not read.
    played = {key: value for key, value in options.items() if key not in _UNREAD}
    spec = registry.spec(name, **played)
    if spec.mask_field is not None:
        raise UserError(
            f"config.policy=fixed: must be another for {name}, which does not allow all actions at every step"
        )
    return _fit(name, json.dumps(played, sort_keys=True), seed)


# A stage opens its setup in `check` and again in `run`, which would fit twice.
@functools.lru_cache(maxsize=1)
def _fit(name: str, options: str, seed: int) -> tuple[float, ...]:
    environment = registry.make(name, **json.loads(options))
    logits = [np.zeros(environment.spec.num_actions)]
    with Progress(
        ROUNDS * EPISODES, "episodes", "fit the best fixed shares of actions", 0
    ) as progress:
        for number in range(ROUNDS):
            shares = _shares(logits[-1])
            counts, returns = play_round(environment, shares, seed, number, progress)
            if not np.isfinite(returns).all():
                raise UserError(
                    f"config.policy=fixed: must be another for {name}, whose returns are not all numbers"
                )
            advantages = returns - returns.mean()
            # Gradient of an episode's log-probability with respect to the logits:
            # [episodes, actions].
            gradients = counts - counts.sum(-1, keepdims=True) * shares
            logits.append(logits[-1] + LEARNING_RATE * (advantages[:, None] * gradients).mean(0))
    environment.close()
    return tuple(_shares(np.mean(logits[-AVERAGED_ROUNDS:], 0)).tolist())


def play_round(
    environment: Environment, shares: np.ndarray, seed: int, number: int, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the actions int64 [episodes, actions], and returns float64 [episodes], of round
    `number`.
    """
    counts = []
    returns: list[float] = []
    for index in range(EPISODES):
        episode_seed = seeds.derive(seed, "fixed shares", number, index)
        choose = FixedPolicy(tuple(shares.tolist())).player(episode_seed, environment.spec)
        # The first transition is the reset, without an action.
        _, *steps = play(environment, episode_seed, choose)
        counts.append(
            np.bincount([cast(int, step.action) for step in steps], minlength=len(shares))
        )
        returns.append(sum(step.reward for step in steps))
        progress.update(number * EPISODES + index + 1, **{"mean return": float(np.mean(returns))})
    return np.array(counts), np.array(returns)


def _shares(logits: np.ndarray) -> np.ndarray:
    """The softmax of `logits`, both float64 [actions]."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()
