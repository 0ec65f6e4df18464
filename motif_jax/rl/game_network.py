"""The kind of network that reads an environment's fields (`nets/agent.py`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from motif_jax.core import config as checks
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets import agent, film
from motif_jax.nets.agent import AgentNetwork
from motif_jax.nets.config import GameNetwork
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.agent_networks import NetworkKind
from motif_jax.rl.config import AgentConfig


class GameNetworkKind(NetworkKind):
    """A network that reads an environment's fields; its section has no key `kind`."""

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
