"""Recall-v0: a small environment without a game, to test whether a system learns and remembers.

The first observation shows a cue. After a few blank steps comes the question: the action of the cue
earns 1, any other 0, and the episode ends. The best expected return is 1 / cues without a memory
and 1 with one.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.text_bytes import padded
from motif_jax.envs.spec import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    ArraySpec,
    Environment,
    EnvironmentSpec,
)

BEST_RETURN = 1.0
_SIGN_LENGTH = 16


class Recall(Environment):
    """The environment; `cues` is also the number of actions, `delay` that of blank steps between
    cue and question.

    Observation: `features` float32 [cues + 1], the cue one-hot in the first step, and a flag that
    is 1 at the question; `sign` uint8 [16], the same in words; `sign_count` int32 [], how often
    this sign was seen in this episode.
    """

    def __init__(
        self, name: str = "Recall-v0", cues: int = 4, delay: int = 4, max_episode_steps: int = 100
    ) -> None:
        self.spec = self.make_spec(name, cues, delay, max_episode_steps)
        self._cues = cues
        self._delay = delay
        self._limit = max_episode_steps

    @staticmethod
    def make_spec(
        name: str = "Recall-v0", cues: int = 4, delay: int = 4, max_episode_steps: int = 100
    ) -> EnvironmentSpec:
        """The spec of the environment with these options."""
        return EnvironmentSpec(
            observation={
                "features": ArraySpec((cues + 1,), "float32"),
                "sign": ArraySpec((_SIGN_LENGTH,), "uint8"),
                "sign_count": ArraySpec((), "int32"),
            },
            num_actions=cues,
            text_field="sign",
            count_field="sign_count",
            episode_fields=("success",),
            section="recall",
        )

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._cue = int(seeds.rng(seed, "cue").integers(self._cues))
        self._steps = 0
        self._return = 0.0
        self._sign_counts = collections.Counter[bytes]()
        self._write(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        # Observation 0 shows the cue, 1 to `delay` are blank, the next one asks.
        is_question = self._steps == self._delay + 1
        reward = 1.0 if is_question and action == self._cue else 0.0
        self._steps += 1
        self._return += reward
        self._write(out)

        if is_question:
            return reward, TERMINATED
        return reward, TRUNCATED if self._steps >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        # The only reward is 1, so the return is also the success.
        return {"return": self._return, "length": float(self._steps), "success": self._return}

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        features = out["features"]
        features[...] = 0.0
        if self._steps == 0:
            text = b"the cue is %d" % self._cue
            features[self._cue] = 1.0
        elif self._steps == self._delay + 1:
            text = b"which cue?"
            features[self._cues] = 1.0
        else:
            text = b""
        self._sign_counts[text] += 1
        out["sign"][...] = padded(text, _SIGN_LENGTH)
        out["sign_count"][...] = self._sign_counts[text]
