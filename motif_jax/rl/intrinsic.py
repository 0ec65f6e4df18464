"""The interface of intrinsic rewards to a training: of frozen ones, and of those that change while
the agent learns; and what a command calls for the one that `config.reward.kind` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import digests
from motif_jax.core.interruption import never
from motif_jax.rl import choices
from motif_jax.rl.config import AgentConfig, AgentReward
from motif_jax.rl.message_table import Values
from motif_jax.rl.reward_keys import MESSAGE, RANKING_THRESHOLD, THRESHOLD


class ObservationSpec(Protocol):
    """The part of an environment's spec that a reward looks at."""

    @property
    def observation(self) -> Mapping[str, Any]:
        """Shape and dtype of each field."""

    @property
    def text_field(self) -> str | None:
        """The field that holds the text, None if there is none."""


class RunSetup(NamedTuple):
    """The training that a reward is made for: its resolved config and its folder."""

    config: AgentConfig
    folder: Path


class RewardSetup(NamedTuple):
    """The inputs of `RewardKind.make`."""

    # `config.reward`: an `AgentReward`, or a `LearnedReward` where labels come while the agent
    # plays. That of module:Class has its own keys, too.
    config: Any
    spec: ObservationSpec
    # Whether the threshold is the two-decimal one of the published quantile file; None: as the
    # reward run's own switch says.
    two_decimals: bool | None = None
    # The device on which `lookup` computes; None for the CPU, or jax's default where there is no
    # CPU.
    device: jax.Device | None = None
    run: RunSetup | None = None  # the training, None where episodes are rated


class BatchMessages(NamedTuple):
    """The distinct texts of a batch."""

    texts: np.ndarray  # uint8 [N, L], each once; `observe` gets only those of rewarded rows
    counts: np.ndarray  # int64 [N], number of rewarded rows with the text
    steps: int  # environment steps of the batch
    update_index: int  # number of updates before the one that learns from the batch
    # float64 [N], the sum of 1 / count ** exponent over the rewarded rows, by the text's count in
    # the episode; None: `counts`.
    discounted: np.ndarray | None = None


def _unchanged(rewards: np.ndarray) -> np.ndarray:
    return rewards


class RewardStages(NamedTuple):
    """What people see of a reward's way to what it pays: the model's output, normalised, and
    paid.
    """

    config: Any  # the reward of this config is the model's output
    normalise: Callable[[Any], Any] = _unchanged
    pay: Callable[[Any], Any] = _unchanged  # from the model's output, as the training pays


class RewardKind:
    """g of an observation: normalised and thresholded, before count discount
    (rl/algorithms/total_reward.py) and coefficient.

    A reward of the text alone overrides `lookup`. One that reads more has `in_step` and `params`:
    it is frozen, and runs on the device in the learner's step. `config.reward.kind` chooses the
    class (`REWARDS` of rl/choices.py), also one from outside this package.

    The batcher's thread calls `pay` for every batch, which calls `lookup` and then `observe`. The
    main thread calls `state`, `restore` and `metrics`. Values may be swapped at any time from any
    thread; a batch has the values of one version. `pay` must not wait for long: the actors would
    wait too. `state` and `metrics` may run while `pay` runs: guard with a lock what both touch, as
    `oni/online.py` and docs/examples/rare_texts.py do. Each of several hosts has its own reward;
    the first one's `state` is saved.

    Attributes:
      fields: observation fields that it reads.
      description: one line for the user.
      in_step: pure function (params, observation fields [T, B, ...]) -> float32 [T, B], or None.
      params: of `in_step`.
      keeps_state: whether checkpoints hold its `state`.
      reads_dir: whether it reads `config.reward.dir`; a folder is refused where it does not.
      stopped: whether the run was asked to stop; set before `start`, which checks it during long
          waits.
    """

    fields: tuple[str, ...] = ()
    description: str = ""
    in_step: Callable[[Any, Mapping[str, jax.Array]], jax.Array] | None = None
    params: Any = None
    keeps_state: bool = False
    reads_dir: bool = True
    stopped: Callable[[], bool] = staticmethod(never)

    @classmethod
    def check(cls, config: Any) -> None:
        """Raises UserError for invalid values of `config.reward`, before anything is computed."""

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        """Raises UserError for a training's resolved config in which this reward cannot be
        learned.
        """

    @classmethod
    def required_fields(cls, config: Any) -> tuple[str, ...]:
        """Observation fields that the reward of `config.reward` reads besides the text."""
        return ()

    @classmethod
    def stages(cls, config: Any, two_decimals: bool | None = None) -> RewardStages:
        """The stages of the reward of `config`; of one that is paid as it is, all are the same.
        Raises UserError as `make`.
        """
        return RewardStages(config)

    @classmethod
    def step_to_pin(cls, config: Any) -> int | None:
        """The checkpoint of the run in `config.reward.dir` that a training uses to its end; None
        where there is no such run.
        """
        return None

    @classmethod
    def rates(cls, config: Any) -> bool:
        """Whether `config.reward` alone determines the rewards of episodes; False for one learned
        in its training.
        """
        return False

    @classmethod
    def files(cls, config: Any) -> tuple[Path, ...]:
        """Files that identify the reward of `config.reward`; missing ones are ignored."""
        return ()

    @classmethod
    def make(cls, setup: RewardSetup) -> Self | None:
        """The reward of `setup`, None where its config means none. Raises UserError: it cannot be
        made.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Called once before the first batch, while the actors start: compiles what `lookup` runs.

        Raises StoppedError: `stopped` was True during a wait; `close` ends what was started.
        """

    def close(self) -> None:
        """Called after the last save, also of a failed run, perhaps twice."""

    def pay(self, batch: BatchMessages) -> Values:
        """Values float32 [N] of the texts of a batch, and their version; shows the texts of
        rewarded rows to `observe`.
        """
        values = self.lookup(batch.texts)
        is_rewarded = batch.counts > 0
        discounted = None if batch.discounted is None else batch.discounted[is_rewarded]
        rewarded = batch._replace(
            texts=batch.texts[is_rewarded], counts=batch.counts[is_rewarded], discounted=discounted
        )
        self.observe(rewarded)
        return values

    def lookup(self, texts: np.ndarray) -> Values:
        """Values of distinct texts uint8 [N, L]: float32 [N], and their version."""
        raise NotImplementedError

    def observe(self, batch: BatchMessages) -> None:
        """Called after `lookup` with the rewarded texts of each batch; a reward that changes while
        the agent plays changes here.
        """

    def swap(self, params: Any, version: int) -> None:
        """Replaces the values, in the form that the reward chooses, without a new compilation."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: nested dictionaries whose leaves are all arrays, or an object
        that JSON can hold; not a mix.
        """
        raise NotImplementedError

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from what `state` returned, before `start`."""
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Numbers for the next row of the log; the same names at any time."""
        return {}


class NoReward(RewardKind):
    """Kind 'none': the task's reward alone."""

    reads_dir = False

    @classmethod
    def check(cls, config: AgentReward) -> None:
        value = config.intrinsic_coefficient
        checks.require(
            value == 0, "reward.intrinsic_coefficient", value, "0 with reward.kind='none'"
        )

    @classmethod
    def make(cls, setup: RewardSetup) -> Self | None:
        return None


def kind_of(config: AgentReward) -> type[RewardKind]:
    """The class that `config.reward.kind` names, else UserError."""
    return choices.REWARDS.load(config.kind)


def check(config: AgentReward) -> None:
    """Raises UserError for invalid values of `config.reward`, before anything is computed."""
    kind = kind_of(config)
    if not kind.reads_dir:
        allowed = f"empty with reward.kind={config.kind}, which reads no folder"
        checks.require(not config.dir, "reward.dir", config.dir, allowed)
    kind.check(config)
    if config.by != MESSAGE:
        allowed = (
            f"{MESSAGE!r} for reward.kind={config.kind}, which is learned while the agent plays"
        )
        checks.require(kind.rates(config), "reward.by", config.by, allowed)


def check_threshold(config: AgentReward) -> None:
    """Raises UserError for a number as threshold of a frozen reward, which configs/oni.py takes for
    'ranking': nothing would read it.
    """
    if config.kind not in choices.REWARDS.parts or config.kind in choices.LEARNED_REWARDS:
        return
    is_read = config.threshold in (*THRESHOLD.choices, RANKING_THRESHOLD)
    words = ", ".join(THRESHOLD.choices)
    allowed = (
        f"one of {words}, or left at {RANKING_THRESHOLD} in configs/oni.py, with reward.kind={config.kind}: "
        "only ranking reads another number"
    )
    checks.require(is_read, "reward.threshold", config.threshold, allowed)


def digest(config: AgentReward) -> str | None:
    """Digest that distinguishes the reward of `config.reward` from a replacement; None without
    one.
    """
    of_files = [digests.of_input(path) for path in kind_of(config).files(config) if path.is_file()]
    return digests.of_bytes("".join(of_files).encode()) if of_files else None


def load_intrinsic(
    config: AgentReward,
    spec: ObservationSpec,
    two_decimals: bool | None = None,
    device: jax.Device | None = None,
    run: RunSetup | None = None,
) -> RewardKind | None:
    """The reward that `config.reward` names, None for none. Raises UserError: it cannot be made.

    Args:
      config, spec, two_decimals, device, run: see `RewardSetup`.
    """
    reward = kind_of(config).make(RewardSetup(config, spec, two_decimals, device, run))
    # Only the batcher, on the host, divides texts into sentences.
    if reward is not None and reward.in_step is not None:
        allowed = (
            f"{MESSAGE!r} for a reward that reads {', '.join(reward.fields)}, not the text alone"
        )
        checks.require(config.by == MESSAGE, "reward.by", config.by, allowed)
    return reward
