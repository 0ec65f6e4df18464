"""Policies that play episodes, for evaluation, collecting and watching.

A `WorkerPolicy` (random actions, a bot) is pickled, sent to the workers and plays there, on the
CPU. A `BatchPolicy` (a network) plays on the device, for a batch of environments at a time. A
policy of yours is given as 'module:Class', and the class is called with the environment's spec.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from motif_jax.core import entry_points, seeds
from motif_jax.core.errors import UserError
from motif_jax.envs.episode import Choose
from motif_jax.envs.spec import MASKED, Action, EnvironmentSpec
from motif_jax.nets import squashed_gaussian

RANDOM = "random"
BOT = "bot"
FIXED = "fixed"
AGENT = "agent"
# Numbers from one generator: making it takes several times as long as drawing them.
_BLOCK = 1024


class Uniforms:
    """Uniform numbers in [0, 1) that depend on the episode's seed and the step alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # The block drawn last, and its number.
        self._number = -1
        self._block = np.empty(0)

    def at(self, step: int) -> float:
        """Returns the number of `step`; steps may be asked for in any order."""
        number, offset = divmod(step, _BLOCK)
        if number != self._number:
            self._number = number
            self._block = seeds.rng(self._seed, "actions", number).random(_BLOCK)
        return float(self._block[offset])

    def each(self) -> Iterator[float]:
        """The numbers of steps 0, 1, ..."""
        return map(self.at, itertools.count())


class WorkerPolicy(Protocol):
    """A policy that needs no device: it plays where the environments are stepped."""

    in_workers: bool  # True

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns what chooses the actions of the episode `seed`; random ones are of those that
        `spec.mask_field` allows.
        """

    def probabilities(
        self, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec
    ) -> np.ndarray | None:
        """Returns float32 [A] for people who watch, None where it has none."""


class BatchPolicy(Protocol):
    """A policy whose network runs on the device, for a batch of environments at a time."""

    in_workers: bool  # False

    def initial_state(self, batch_size: int) -> Any:
        """Returns the recurrent state before an episode, for `batch_size` environments."""

    def act(
        self, observation: Mapping[str, np.ndarray], first: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray | None, Any]:
        """Reads one observation per environment.

        Args:
          observation: the fields of the environment's spec, [B, ...] each.
          first: bool [B], True where an episode begins: the state is zeroed before the observation
              is read.

        Returns:
          Logits float32 [B, A], or of real numbers what `nets.squashed_gaussian` reads, float32
          [B, 2 n]; values float32 [B] or None; the new state. Actions are drawn by the caller, of
          those that the environment allows.
        """


@dataclass(frozen=True)
class RandomPolicy:
    """Every allowed action is equally likely; the draw depends on the episode's seed and the step
    alone.
    """

    name: str = RANDOM
    in_workers: ClassVar[bool] = True

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        draws = Uniforms(seed).each()
        if spec.action_size:
            # Each number in [-1, 1) takes a draw of its own.
            return lambda _: [2 * next(draws) - 1 for _ in range(spec.action_size)]
        if spec.mask_field is None:
            return lambda _: int(next(draws) * spec.num_actions)

        def choose(observation: Mapping[str, np.ndarray]) -> int:
            actions = np.flatnonzero(allowed(observation, spec))
            return int(actions[int(next(draws) * len(actions))])

        return choose

    def probabilities(
        self, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec
    ) -> np.ndarray | None:
        if spec.action_size:
            return None
        mask = allowed(observation, spec)
        count = np.maximum(mask.sum(-1, keepdims=True), 1)
        return np.where(mask, 1 / count, 0).astype(np.float32)


@dataclass(frozen=True)
class BotPolicy:
    """The environment's scripted player (`EnvironmentSpec.expert_field`); where it has no answer, a
    random action.
    """

    name: str = BOT
    in_workers: ClassVar[bool] = True

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        random_action = RandomPolicy().player(seed, spec)

        def choose(observation: Mapping[str, np.ndarray]) -> Action:
            action = _expert(observation, spec)
            return random_action(observation) if action is None else action

        return choose

    def probabilities(
        self, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec
    ) -> np.ndarray | None:
        action = _expert(observation, spec)
        if action is None:
            return RandomPolicy().probabilities(observation, spec)
        return np.eye(spec.num_actions, dtype=np.float32)[action]


@dataclass(frozen=True)
class FixedPolicy:
    """Ignores the observation: fixed action probabilities. The baseline for agents that read.

    Environments that mask actions are refused before (`fixed_shares.fit`).

    Attributes:
      shares: probabilities of the actions, in their order; they add up to 1.
    """

    shares: tuple[float, ...]
    name: str = FIXED
    in_workers: ClassVar[bool] = True

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        draws = Uniforms(seed).each()
        bounds = np.cumsum(self.shares)
        last = spec.num_actions - 1
        # Rounding may leave the last bound below 1.
        return lambda _: min(int(np.searchsorted(bounds, next(draws), side="right")), last)

    def probabilities(
        self, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec
    ) -> np.ndarray:
        return np.array(self.shares, np.float32)


def is_user_policy(policy: str) -> bool:
    """Whether `config.policy` names a class; the path of a run folder may look like one."""
    return entry_points.is_entry_point(policy) and not Path(policy).is_dir()


def load_user_policy(name: str, spec: EnvironmentSpec, key: str = "policy") -> Any:
    """Makes the policy 'module:Class' that `config.key` names, a `WorkerPolicy` or a
    `BatchPolicy`.
    """
    policy: Any = entry_points.load(key, name)
    # A class or function makes the policy; another object is one already.
    if callable(policy):
        entry_points.require_signature(key, name, policy, spec)
        policy = policy(spec)
    return policy


def _expert(observation: Mapping[str, np.ndarray], spec: EnvironmentSpec) -> int | None:
    """The scripted player's action, None where it has none (`EnvironmentSpec.expert_field`)."""
    assert spec.expert_field is not None, "the bot is given to environments that have one"
    answer = observation[spec.expert_field]
    if answer == np.iinfo(answer.dtype).max:
        return None
    if answer >= spec.num_actions:
        raise UserError(
            f"{spec.expert_field} is {answer}, no action: it must be below {spec.num_actions}, or {np.iinfo(answer.dtype).max} where "
            "the scripted player has no answer"
        )
    return int(answer)


def allowed(observation: Mapping[str, np.ndarray], spec: EnvironmentSpec) -> np.ndarray:
    """Which actions the environment has on observations [..., *shape]: bool [..., A], or [A] if all
    are always allowed.
    """
    if spec.mask_field is None:
        return np.ones(spec.num_actions, bool)
    return observation[spec.mask_field] != 0


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of `logits` [..., A] in float64."""
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def masked(
    logits: np.ndarray, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec
) -> np.ndarray:
    """Returns `logits` [..., A] with `MASKED` for actions that the environment does not allow."""
    return (
        logits if spec.mask_field is None else np.where(allowed(observation, spec), logits, MASKED)
    )


def choose_actions(
    outputs: np.ndarray, uniforms: np.ndarray, greedy: bool, spec: EnvironmentSpec
) -> tuple[np.ndarray, np.ndarray]:
    """Draws one action per row.

    Args:
      outputs: logits float [B, A], `MASKED` for actions that are not allowed, from which the
        cumulative distribution is inverted; or the outputs [B, 2 n] for n real numbers.
      uniforms: float [B] in [0, 1), on which the draw depends.
      spec: says of which kind actions are.

    Returns:
      Actions int32 [B] or float32 [B, n], and their log-probabilities float32 [B].
    """
    if spec.action_size:
        return _choose_numbers(outputs, uniforms, greedy)
    log_probs = log_softmax(outputs)
    actions = log_probs.argmax(-1) if greedy else _draw_actions(np.exp(log_probs), uniforms)
    action_log_probs = np.take_along_axis(log_probs, actions[:, None], -1)[:, 0]
    return actions.astype(np.int32), action_log_probs.astype(np.float32)


def _choose_numbers(
    outputs: np.ndarray, uniforms: np.ndarray, greedy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """`choose_actions` for real numbers; a greedy action is the median of each."""
    size = outputs.shape[-1] // 2
    normal = np.zeros((len(outputs), size))
    if not greedy:
        # A uniform number of 53 bits seeds as many normal numbers as an action needs.
        generators = [np.random.default_rng(int(uniform * 2**53)) for uniform in uniforms.tolist()]
        normal = np.stack([generator.standard_normal(size) for generator in generators])
    actions = squashed_gaussian.squashed(np, outputs, normal).astype(np.float32)
    # Of the rounded action, which is what the game is given and what a record keeps.
    log_probs = squashed_gaussian.log_prob(np, outputs, actions.astype(np.float64))
    return actions, log_probs.astype(np.float32)


def _draw_actions(probabilities: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """The first action of each row whose cumulative probability exceeds the row's uniform number,
    int [B].
    """
    cumulative = probabilities.cumsum(-1)
    # Rounding may leave the last sum slightly off 1, so the uniform number is scaled by it.
    thresholds = uniforms[:, None] * cumulative[:, -1:]
    actions = (cumulative <= thresholds).sum(-1)

    # Where the threshold rounds up to the last sum, no action exceeds it: the last one that has a
    # probability is drawn.
    has_probability = probabilities > 0
    last_action = probabilities.shape[-1] - 1
    last_possible = last_action - has_probability[:, ::-1].argmax(-1)
    return np.minimum(actions, last_possible)
