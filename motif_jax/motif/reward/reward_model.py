"""Loads an evaluation of `train_reward`: the model with its statistics.

Runs of agents whose reward was learned while they played count as folders of a reward, too. What
reads them lies with the method that writes them, and is imported where such a folder is opened.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import entry_points, run_folder
from motif_jax.core.checkpoints import JSON, Checkpoints
from motif_jax.core.devices.parallel import cpu_device
from motif_jax.core.errors import UserError
from motif_jax.core.training.run_files import default_step
from motif_jax.motif.pairs.threshold import AUTO
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.normalisation import Normalisation, two_decimals
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork

# Number of texts in every call of the network. A program of another size rounds differently:
# whether a text at a threshold is paid would depend on the texts beside it.
CHUNK = 32
# Messages of at most so many bytes run in a program of that width, which is cheaper; most of
# NetHack's are.
SHORT_MESSAGE = 96
# What reads runs that learned their reward online, and the file of such a run with the labels of
# its messages.
_ONLINE_READER = "motif_jax.oni.online_model:OnlineRuns"
ONLINE_LABELS = "labels.jsonl"


@dataclasses.dataclass(frozen=True)
class RewardModel:
    """One evaluation of a reward run.

    Attributes:
      folder: the run folder, or the .safetensors file.
      step: number of the evaluation: 0 before the first epoch, n after n epochs.
      params: numpy arrays; those of an ensemble have a leading axis of members.
      members: size of the ensemble, 1 for a single model.
      statistics: see `reward_evaluation.reward_statistics`; the quantiles are exact.
      config: that of the run, as plain data.
      curve: JSON rows of all evaluations up to this one.
      learned_online: whether an agent's training learned it, with a threshold of its own that is
          not a quantile.
    """

    folder: Path
    step: int
    network: RewardNetwork
    params: Any
    members: int
    statistics: dict[str, Any]
    config: dict[str, Any]
    curve: list[dict[str, Any]]
    learned_online: ClassVar[bool] = False

    def header(self) -> dict[str, Any] | None:
        """An object for the header of its file, besides parameters and statistics; None for
        nothing.
        """
        return None

    def normalisation(
        self,
        normalise: bool = True,
        quantile: float | str | None = None,
        rounded: bool | None = None,
    ) -> Normalisation:
        """Statistics of this evaluation with the threshold at one of its quantiles. Raises
        UserError: they have none such; ValueError: they are not finite, the training had diverged.

        Args:
          normalise: False leaves rewards raw (the threshold stays a normalised one, as published).
          quantile: one of .05, .10 ... .95; 'auto' for the threshold advised by the labels; None
              for no threshold.
          rounded: use the two-decimal number of the published quantile file; None: as the run's own
              compat switch.
        """
        # That which the labels advise, one of the table's quantiles, or none.
        threshold = None
        if quantile == AUTO:
            threshold = self._advised_threshold()
        elif quantile is not None:
            threshold = self._quantile_threshold(float(quantile))
            if rounded is None:
                rounded = bool(self.config.get("compat", {}).get("quantile_two_decimals", False))
            if rounded:
                threshold = two_decimals([threshold])[0]
        return Normalisation(
            self.statistics["mean"], self.statistics["variance"], threshold, normalise
        )

    def _quantile_threshold(self, quantile: float) -> float:
        """The normalised reward at one of the quantiles of the table. Raises UserError: the table
        has no such level.
        """
        matches = np.flatnonzero(
            np.isclose(self.statistics["quantile_levels"], quantile, atol=1e-9)
        )
        if not matches.size:
            levels = ", ".join(f"{level:g}" for level in self.statistics["quantile_levels"])
            raise UserError(
                f"config.reward.quantile={quantile}: {self.folder} has the levels {levels or 'none'}, and None"
            )
        return self.statistics["quantiles"][matches[0]]

    def _advised_threshold(self) -> float:
        threshold = (self.statistics.get("advice") or {}).get("threshold")
        if threshold is None:
            raise UserError(
                f"config.reward.threshold=auto: {self.folder} recommends none (it reads more than the message, or was "
                "not trained here): use config.reward.quantile"
            )
        return float(threshold)

    def raw(self, params: Any, inputs: dict[str, jax.Array]) -> jax.Array:
        """Raw rewards float32 [N] of observations [N, ...], the mean over the members of an
        ensemble.
        """
        return jnp.mean(of_members(self.network.reward, self.members, params, inputs), axis=0)

    def disagreement(self, members: np.ndarray) -> np.ndarray:
        """Standard deviation float32 [N] of the members' rewards float32 [members, N], each
        normalised by its own statistics.
        """
        means = self.statistics["member_mean"]
        variances = self.statistics["member_variance"]
        normalised = [
            Normalisation(mean, variance).normalise(rewards)
            for mean, variance, rewards in zip(means, variances, members, strict=True)
        ]
        return np.std(np.stack(normalised), axis=0).astype(np.float32)

    def of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [N] of messages uint8 [N, L], L <= 256; see `members_of_messages`."""
        return self.combine_members(self.members_of_messages(params, messages))

    def combine_members(self, members: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [N] of an ensemble: the mean of float32 [members, N]."""
        # In float32, as `raw` computes it on a device.
        return np.asarray(np.mean(members, axis=0, dtype=np.float32))

    def members_of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [members, N] of messages uint8 [N, L].

        A message's value does not depend on its batch: always the same program, on the CPU where
        there is one unless `params` lie elsewhere.
        """
        return messages_in_chunks(self.network.architecture, self.members, params, messages)

    def compile_messages(self, params: Any) -> None:
        """Compiles the programs of `of_messages`, for short and long messages, on the device where
        `params` lie.
        """
        # An empty message, and one of full length.
        messages = np.zeros((2, 256), np.uint8)
        messages[1] = 1
        self.members_of_messages(params, messages)


def messages_in_chunks(
    architecture: RewardArchitecture, members: int, params: Any, messages: np.ndarray
) -> np.ndarray:
    """Raw rewards float32 [members, N] of messages uint8 [N, L]; see `in_chunks`."""
    return in_chunks(
        functools.partial(message_program, architecture, members), params, messages, members
    )


def in_chunks(
    program_of: Callable[[int | None], Callable[[Any, np.ndarray], jax.Array]],
    params: Any,
    messages: np.ndarray,
    members: int,
) -> np.ndarray:
    """Outputs float32 [members, N] of messages uint8 [N, L], L <= 256, each independent of the
    others.

    Args:
      program_of: the program (params, messages uint8 [CHUNK, 256]) -> [members, CHUNK] for messages
        whose bytes from a length on are zero (None: 256).
      params: the programs run on their device, or else on the CPU.
    """
    messages = pad_messages(messages)
    # A message runs in the narrowest program that holds it, whatever others are asked with it.
    is_long = messages[:, SHORT_MESSAGE:].any(axis=1)
    launched = []
    for is_in_group, length in ((~is_long, SHORT_MESSAGE), (is_long, None)):
        indices = np.flatnonzero(is_in_group)
        for start in range(0, indices.size, CHUNK):
            chunk = indices[start : start + CHUNK]
            padded = np.zeros((CHUNK, messages.shape[1]), np.uint8)
            padded[: chunk.size] = messages[chunk]
            # For parameters in numpy's arrays; those that lie on a device keep the program there.
            with jax.default_device(cpu_device()):
                launched.append((chunk, program_of(length)(params, padded)))

    # All programs are launched before the first result is read: to read one waits for it.
    values = np.empty((members, len(messages)), np.float32)
    for chunk, outputs in launched:
        values[:, chunk] = np.asarray(outputs)[:, : chunk.size]
    return values


@functools.lru_cache(maxsize=64)
def message_program(architecture: RewardArchitecture, members: int, length: int | None) -> Any:
    """The program (params, messages uint8 [CHUNK, 256]) -> raw rewards float32 [members, CHUNK];
    `length` as in `in_chunks`.

    It is cached, so that all models of one architecture share its compilation.
    """
    network = RewardNetwork(architecture)

    def message_rewards(params: Any, messages: jax.Array) -> jax.Array:
        return of_members(network.reward, members, params, {"message": messages}, length)

    return jax.jit(message_rewards)


def of_members(
    function: Callable[..., jax.Array], members: int, params: Any, *inputs: Any
) -> jax.Array:
    """Values [members, N] of function(params, *inputs); parameters have a leading axis where there
    are several members.
    """
    if members == 1:
        return function(params, *inputs)[None]
    return jax.vmap(function, in_axes=(0, *(None for _ in inputs)))(params, *inputs)


def pad_messages(messages: np.ndarray) -> np.ndarray:
    """Brings messages uint8 [N, L] to 256 bytes with zeros. Raises ValueError: they are longer."""
    width = messages.shape[1]
    return np.pad(messages, ((0, 0), (0, 256 - width))) if width != 256 else messages


def online_reader() -> Any:
    """The class that reads such runs (`oni/online_model.py:OnlineRuns`)."""
    return entry_points.load_packaged(_ONLINE_READER)


def online_reader_of(config: Mapping[str, Any]) -> Any | None:
    """`online_reader()` for the config of a training of an agent that learned its reward, None for
    another run's.
    """
    if config.get("stage") != "train_agent":
        return None
    return online_reader() if online_reader().wrote(config) else None


def read_architecture(folder: str | Path) -> tuple[RewardArchitecture, int, dict[str, Any]]:
    """(architecture, members, config) of a reward run folder; UserError if it is none."""
    config = run_folder.read_config(folder)
    reader = online_reader_of(config)
    # A run of an agent that learned its reward has a config of another form.
    if reader is not None:
        return *reader.architecture(config), config
    if config.get("stage") != "train_reward":
        raise UserError(f"{folder} holds a run of {config.get('stage')}: give one of train_reward")
    # A quirk among the switches that changes the network.
    centre = bool(config["compat"]["glyph_crop_centre"])
    architecture = RewardArchitecture(**config["network"], glyph_crop_centre=centre)
    return architecture, int(config["ensemble"]["members"]), config


def architecture_of(config: RewardConfig) -> RewardArchitecture:
    """The architecture of the reward that a training learns."""
    centre = config.compat.glyph_crop_centre
    return RewardArchitecture(**dataclasses.asdict(config.network), glyph_crop_centre=centre)


def read_run(folder: str | Path, step: int | None = None) -> RewardModel:
    """Reads evaluation `step` of the reward run in `folder` (None: `default_step`)."""
    folder = Path(folder)
    architecture, members, config = read_architecture(folder)
    reader = online_reader_of(config)
    if reader is not None:
        # Such a run has checkpoints of its agent in place of evaluations.
        return reader.read(folder, step, config)
    network = RewardNetwork(architecture)
    # Shapes and dtypes alone: nothing is computed.
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    if members > 1:
        # The parameters of an ensemble have a leading axis.
        abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), abstract
        )
    with Checkpoints(folder / "checkpoints", keep=None, read_only=True) as checkpoints:
        if step is None:
            step = default_step(checkpoints, config)
        step = checkpoints.require_saved(step)
        items = checkpoints.restore(step, {"params": abstract, "statistics": JSON, "curve": JSON})
    return RewardModel(
        folder=folder,
        step=step,
        network=network,
        params=items["params"],
        members=members,
        statistics=items["statistics"],
        config=config,
        curve=items["curve"]["rows"],
    )


def saved_steps(folder: str | Path) -> list[int]:
    """The evaluations of the reward run in `folder`, ascending."""
    with Checkpoints(Path(folder) / "checkpoints", keep=None, read_only=True) as checkpoints:
        return checkpoints.steps()
