"""The intrinsic reward of an agent: one interface for rewards of the text alone and of whole observations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import chex
import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.rewards.message_table import MessageTable
from motif_jax.rewards.trained import TrainedReward, read_architecture, read_trained
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError


class ObservationSpec(Protocol):
    """The part of an environment's spec that a reward looks at."""

    @property
    def observation(self) -> Mapping[str, Any]:
        """Shape and dtype of each field."""

    @property
    def text_field(self) -> str | None:
        """The field that holds the text, None if there is none."""


@dataclasses.dataclass(frozen=True)
class IntrinsicReward:
    """g of an observation: normalised and thresholded, before count discount (algorithms/total_reward.py) and coefficient.

    Either `lookup` or `in_step` is there. A reward of the text alone is frozen and looked up on the host; one
    that reads more runs on the device in the learner's step.

    Attributes:
      fields: observation fields that it reads.
      lookup: texts uint8 [N, L] -> float32 [N], or None.
      in_step: pure function (params, observation fields [T, B, ...]) -> float32 [T, B], or None.
      params: what `in_step` wants; None with `lookup`.
      description: one line for people.
      table: the table behind `lookup`, with its counts of hits and misses.
      compile: compiles what `lookup` runs, so that no batch waits for a compiler; None with `in_step`.
    """

    fields: tuple[str, ...]
    lookup: Callable[[np.ndarray], np.ndarray] | None
    in_step: Callable[[Any, Mapping[str, jax.Array]], jax.Array] | None = None
    params: Any = None
    description: str = ""
    table: MessageTable | None = None
    compile: Callable[[], None] | None = None


TABLE_CAPACITY = 1 << 18


def check(config: ConfigDict) -> None:
    """Raises UserError for values of `config.reward` that make no sense, before anything is computed.

    Reads the evaluation that `step` means: a step or quantile that it does not have is told here, not when the run
    folder has been given to a run with it.
    """
    whole = ConfigDict({"reward": config})
    checks.positive(whole, "reward.step", allow_zero=True, allow_none=True)
    checks.fraction(whole, "reward.quantile", allow_none=True)
    if config.dir:
        checks.existing_folder(whole, "reward.dir")
        read_trained(config.dir, config.step).normalisation(config.normalise, config.quantile)


def required_fields(config: ConfigDict) -> tuple[str, ...]:
    """Observation fields that the reward in `config` reads; () for no reward. Reads only its config.json."""
    return read_architecture(config.dir)[0].fields if config.dir else ()


def load_intrinsic(
    config: ConfigDict,
    spec: ObservationSpec,
    two_decimals: bool | None = None,
    device: jax.Device | None = None,
) -> IntrinsicReward | None:
    """Loads the intrinsic reward that `config.reward` names.

    Args:
      config: `config.reward`: dir, the run folder of train_reward, None for no intrinsic reward; step, its
        evaluation, None for the newest (of a run that stops early: the best); normalise; quantile, the threshold's, None for no threshold.
      spec: of the environment; says which field holds the text.
      two_decimals: whether the threshold is the two-decimal number of the published quantile file; None: as
        the reward run's own switch says.
      device: where `lookup` computes; None for jax's default.

    Returns:
      The reward; None if `config.dir` is not set.

    Raises:
      UserError: no such folder or evaluation, a quantile that is none of the levels, or the environment lacks
        a field that the reward reads.
    """
    if not config.dir:
        return None
    trained = read_trained(config.dir, config.step)
    normalisation = trained.normalisation(config.normalise, config.quantile, two_decimals)
    shown = "no threshold" if normalisation.threshold is None else f"threshold {normalisation.threshold:g}"
    description = f"{config.dir}, evaluation {trained.step}, {shown}"
    if not trained.network.architecture.message_only:
        return _in_step(trained, normalisation, spec, description)
    if spec.text_field is None:
        raise UserError(f"config.reward.dir={config.dir}: the environment shows no text to reward")

    def compute(params: Any, texts: np.ndarray) -> np.ndarray:
        return np.asarray(normalisation(trained.of_messages(params, texts)), np.float32)

    params = jax.device_put(trained.params, device)
    table = MessageTable(compute, params, trained.step, TABLE_CAPACITY)
    return IntrinsicReward(
        (spec.text_field,),
        table.lookup,
        description=description,
        table=table,
        compile=lambda: trained.compile_messages(params),
    )


def _in_step(
    trained: TrainedReward, normalisation: Any, spec: ObservationSpec, description: str
) -> IntrinsicReward:
    fields = trained.network.architecture.fields
    missing = [name for name in fields if name not in spec.observation]
    if missing:
        raise UserError(
            f"config.reward.dir={trained.folder}: this reward reads {', '.join(missing)}, which the environment "
            f"does not show: it shows {', '.join(sorted(spec.observation))}"
        )

    def in_step(params: Any, observation: Mapping[str, jax.Array]) -> jax.Array:
        chex.assert_equal_shape_prefix([observation[name] for name in fields], 2)
        leading = observation[fields[0]].shape[:2]
        rows = {name: observation[name].reshape(-1, *observation[name].shape[2:]) for name in fields}
        return jax.lax.stop_gradient(normalisation(trained.raw(params, rows)).reshape(leading))

    return IntrinsicReward(fields, None, in_step, trained.params, description)
