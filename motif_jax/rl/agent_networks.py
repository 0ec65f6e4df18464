"""The kinds of networks that `config.network.kind` names: `class_of(config).make(config, spec)`
makes a config's network.

A kind is a subclass of `NetworkKind`, listed in `choices.NETWORKS`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax

from motif_jax.core import config as checks
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import Sharded
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets import agent, film
from motif_jax.nets.agent import AgentNetwork
from motif_jax.nets.config import GameNetwork
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import choices
from motif_jax.rl.choices import GAME
from motif_jax.rl.config import AgentConfig


class NetworkKind(abc.ABC):
    """A kind of network: what a training has to know before it makes one.

    Attributes:
      named_by: the key of `config.network` that holds the path of its files; used in errors.
      splits: whether its parameters can be split over devices.
      is_slow: whether its updates may take minutes, so that a training prints what it does before
        the first, and a stop waits for none.
    """

    named_by: str = ""
    splits: bool = False
    is_slow: bool = False

    @classmethod
    @abc.abstractmethod
    def make(cls, config: AgentConfig, spec: EnvironmentSpec) -> PolicyNetwork:
        """The network for an environment. Raises UserError: the environment lacks a field that the
        network reads.
        """

    @classmethod  # noqa: B027 (there may be nothing to check)
    def check(cls, config: AgentConfig) -> None:
        """Raises UserError for a value of `config.network` that is not allowed."""

    @classmethod
    def environment_options(cls, config: AgentConfig) -> dict[str, Any]:
        """Options that the network needs from the environment, JSON-able: extra fields, a
        tokenizer.
        """
        return {}

    @classmethod
    def remark(cls, config: AgentConfig) -> str:
        """One line that a training of it prints at its start; '' for none."""
        return ""

    @classmethod
    def file_digests(cls, config: AgentConfig) -> dict[str, str]:
        """Name -> digest of the files that every start reads and no checkpoint holds."""
        return {}

    @classmethod
    def start_digests(cls, config: AgentConfig) -> dict[str, str]:
        """Name -> digest of the files, besides those of `file_digests`, that the first parameters
        are made of.
        """
        return {}

    @classmethod
    def takes_any_actions(cls, config: AgentConfig) -> bool:
        """Whether the network scores any words as actions, not only the actions it was trained
        with.
        """
        return False

    @classmethod
    def prompt_room(cls, config: AgentConfig) -> int | None:
        """The longest prompt in tokens of a network that reads prompts; None: no limit."""
        return None

    @classmethod
    def product_dtype(cls, config: AgentConfig) -> str | None:
        """The dtype in which the network multiplies, which decides the devices' peak rate; None:
        their share of it is not logged.
        """
        return None

    @classmethod
    def counted(
        cls, config: AgentConfig, network: PolicyNetwork, params: Any
    ) -> tuple[PolicyNetwork, Any] | None:
        """The network and the parameter shapes that FLOPs are counted for; None: they are not
        counted.

        Args:
          params: all parameters of `network`.
        """
        return None


class GameNetworkKind(NetworkKind):
    """A network that reads an environment's fields (`nets/agent.py`); its section has no key
    `kind`.
    """

    @classmethod
    def make(cls, config: AgentConfig, spec: EnvironmentSpec) -> AgentNetwork:
        return agent.make_agent_network(
            config.network, spec, config.compat.symbolic_train_mode_batchnorm
        )

    @classmethod
    def check(cls, config: AgentConfig) -> None:
        is_shifted = config.compat.crop_row_offset and config.network.encoder == agent.UNDERFOOT
        allowed = "another encoder with compat.crop_row_offset: it takes the window's middle for the hero's cell"
        checks.require(not is_shifted, "network.encoder", config.network.encoder, allowed)

    @classmethod
    def environment_options(cls, config: AgentConfig) -> dict[str, Any]:
        options = registry.options_of(vars(config.environment))
        optional_fields = registry.spec(config.environment.name, **options).optional_fields
        reads_words = config.network.encoder == agent.FILM and film.INSTRUCTION in optional_fields
        return {"fields": [film.INSTRUCTION]} if reads_words else {}

    @classmethod
    def product_dtype(cls, config: AgentConfig) -> str:
        return config.network.dtype

    @classmethod
    def counted(
        cls, config: AgentConfig, network: PolicyNetwork, params: Any
    ) -> tuple[PolicyNetwork, Any]:
        return published_form(config.network, network)


def published_form(config: GameNetwork, network: PolicyNetwork) -> tuple[PolicyNetwork, Any]:
    """The network with the published form of the first convolution, whichever form computes it, and
    shapes of its parameters.
    """
    published = agent.make_agent_network(
        dataclasses.replace(config, first_convolution="picture"), network.spec
    )
    return published, jax.eval_shape(published.init, jax.random.PRNGKey(0))


def kind_of(config: AgentConfig) -> str:
    """The kind of the config's network: a name of `choices.NETWORKS`."""
    return getattr(config.network, "kind", GAME)


def class_of(config: AgentConfig) -> type[NetworkKind]:
    """The class of the config's kind of network."""
    return choices.NETWORKS.load(kind_of(config))


def refuse_changed(
    config: AgentConfig,
    learned_with: Mapping[str, str],
    where: str,
    started_from: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raises UserError where a file has changed since the training.

    Args:
      learned_with: the output of `file_digests` at the time of the training; {} where it was not
          recorded.
      where: the config key that names the run, for the error.
      started_from: that of `start_digests`, for the parameters as the training began; {} for later
          ones.
    """
    now = class_of(config).file_digests(config) if learned_with else {}
    if started_from:
        start = class_of(config).start_digests(config)
        now = {**now, **start}
        # A clone records its model even where fresh weights were drawn.
        of_start = {name: digest for name, digest in started_from.items() if name in start}
        learned_with = {**learned_with, **of_start}
    changed = [name for name, digest in learned_with.items() if now.get(name) != digest]
    if changed:
        key = class_of(config).named_by
        raise UserError(
            f"{where} was trained with a different {' and a different '.join(changed)} than config.network.{key}={getattr(config.network, key)} "
            "has now: restore the previous one"
        )


def mesh_sizes(config: AgentConfig, devices: int) -> dict[str, int] | None:
    """The number of devices along each axis of the mesh, for a network split over devices; None
    where each holds all of it.
    """
    split = config.sharding
    if split is None or split.fsdp * split.tensor == 1:
        return None
    # The devices that a network is not split over hold copies of it, which share the batch.
    return {
        "data": devices // (split.fsdp * split.tensor),
        "fsdp": split.fsdp,
        "tensor": split.tensor,
    }


def make_parallel(config: AgentConfig, devices: Sequence[jax.Device]) -> DataParallel | Sharded:
    """The learner's parallelism over its devices. Raises UserError: the network cannot be split."""
    sizes = mesh_sizes(config, len(devices))
    if sizes is None:
        return DataParallel(devices)
    if not class_of(config).splits:
        raise UserError(
            "config.sharding: only language models can be split over devices: leave it out"
        )
    return Sharded(sizes, devices)
