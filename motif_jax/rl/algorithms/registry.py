"""The update algorithms that `config.algorithm.name` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.glam import drrn_update
from motif_jax.rl.algorithms import appo, ppo_update
from motif_jax.rl.config import AgentConfig


class Algorithm(Protocol):
    """What a training needs of an algorithm; `appo` and `ppo_update` are two.

    Its state is a NamedTuple with at least `params` of the network; `step`, int32 scalar, the number of updates; and `reward_params`
    of a reward that is computed in the update, () before, which no checkpoint holds.

    If the state has a field `memory` of played steps, `with_memory(state, network, config)` makes it; a skipped update adds its
    batch, too. If it has a field `reference` of the parameters at the start, `with_reference(state, config)` makes it.
    """

    def check(self, config: AgentConfig) -> None:
        """Raises UserError for values of `config.algorithm` that are not allowed."""

    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> Any:
        """A new state; the same key gives the same."""

    def make_update(
        self, network: Any, optimizer: Any, config: AgentConfig, *, reward_fn: Any = None
    ) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
        """Builds update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars), see `update.make`."""


ALGORITHMS: dict[str, Algorithm] = {"appo": appo, "ppo": ppo_update, "drrn": drrn_update}


def algorithm_of(config: AgentConfig) -> Algorithm:
    """The algorithm that `config.algorithm.name` names."""
    name = config.algorithm.name
    if not entry_points.is_entry_point(name):
        allowed = f"{', '.join(ALGORITHMS)}, or module:Class"
        checks.require(name in ALGORITHMS, "algorithm.name", name, allowed)
        return ALGORITHMS[name]
    made: Algorithm = entry_points.load("algorithm.name", name)()
    wanted = ("check", "make_state", "make_update")
    good = all(callable(getattr(made, method, None)) for method in wanted)
    checks.require(good, "algorithm.name", name, f"a class with {', '.join(wanted)}")
    return made
