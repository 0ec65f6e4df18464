"""The best policy that reads nothing: the shares of the actions, equal at every step, with the greatest return.

Method: the policy gradient of REINFORCE (Williams 1992) on the logits of the shares, with the mean return as the baseline. The shares are
those of the mean logits of the last rounds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.progress import Progress
from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.play.policies import FixedPolicy

ROUNDS, EPISODES, STEP, LAST = 24, 240, 8.0, 6
# Of what is seen, which changes nothing of what an action does.
_UNREAD = ("tokenizer", "prompt_tokens", "special_tokens", "fields", "change")


def fit(name: str, options: Mapping[str, Any], seed: int) -> tuple[float, ...]:
    """Shares of the actions, fitted on 5,760 episodes (45 s in BabyAI-Text); UserError where not all are always allowed."""
    played = {key: value for key, value in options.items() if key not in _UNREAD}
    if registry.spec(name, **played).mask_field is not None:
        raise UserError(
            f"config.policy=fixed: must be another for {name}, which does not allow all actions at every step"
        )
    return _fit(name, json.dumps(played, sort_keys=True), seed)


@functools.lru_cache(maxsize=1)
def _fit(name: str, options: str, seed: int) -> tuple[float, ...]:
    environment = registry.make(name, **json.loads(options))
    logits = [np.zeros(environment.spec.num_actions)]
    with Progress(ROUNDS * EPISODES, "episodes", "fit the best fixed shares of actions", 0) as progress:
        for number in range(ROUNDS):
            shares, counts, earned = _shares(logits[-1]), [], []
            for index in range(EPISODES):
                episode = seeds.derive(seed, "fixed shares", number, index)
                choose = FixedPolicy(tuple(shares.tolist())).player(episode, environment.spec)
                _, *moments = play(environment, episode, choose)
                counts.append(np.bincount([moment.action for moment in moments], minlength=len(shares)))
                earned.append(sum(moment.reward for moment in moments))
                progress.update(number * EPISODES + index + 1, **{"mean return": float(np.mean(earned))})
            taken, better = np.array(counts), np.array(earned) - np.mean(earned)
            scores = taken - taken.sum(-1, keepdims=True) * shares
            logits.append(logits[-1] + STEP * (better[:, None] * scores).mean(0))
    environment.close()
    return tuple(_shares(np.mean(logits[-LAST:], 0)).tolist())


def _shares(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()
