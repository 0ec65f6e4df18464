"""Runs several sets of parameters of one network in one program.

ILQL (Snell et al. 2022) has three trunks: policy, values, and the values' target. On an accelerator
their parameters are stacked, and each matrix product is one over a leading axis [C]: many small
products would leave it idle. On a CPU such products are slower (by a fifth, for trunks of width 96
to 256), so there the trunks run one after the other. Optimisers, checkpoints and targets keep
parameters apart, by name; `StackedModels.join` joins them inside the program that runs them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core.training import block_stack
from motif_jax.lm.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.lm.network import States


@dataclasses.dataclass(frozen=True)
class TrunkRoles:
    """The trunk's name for each part, such as {"policy": "values", "values": "values",
    "target": "target"}: shared trunks run once.
    """

    trunk_of: Mapping[str, str]

    @property
    def trunks(self) -> tuple[str, ...]:
        """The names of the trunks, each once, in the order of the axis [C]."""
        return tuple(dict.fromkeys(self.trunk_of.values()))

    def trees(self, trunks: Mapping[str, Any]) -> list[Any]:
        """The trunks' parameters in the order of [C], for `StackedModels.join`."""
        return [trunks[name] for name in self.trunks]

    def of(self, part: str, states: States) -> States:
        """The states [...] of a part's trunk, of the states [C, ...] of all trunks."""
        index = self.trunks.index(self.trunk_of[part])
        return States(*(leaf[index] for leaf in states))


@dataclasses.dataclass(frozen=True)
class StackedModels:
    """A decoder with several sets of parameters.

    Trunks share tokens, masks and positions; each has its own keys.

    Attributes:
      together: each product is one over all trunks; False: trunks run one after the other; None:
          the quicker one for the platform.
    """

    model: LanguageModel
    together: bool | None = None

    def join(self, trees: Sequence[Any]) -> Any:
        """The parameters of all trunks, in the form that the other methods receive."""
        together = self.together
        if together is None:
            together = jax.default_backend() != "cpu"
        # Here, inside the program: optimisers and checkpoints keep float32 trunks by name.
        prepared = [self.model.prepared(tree) for tree in trees]
        if not together:
            return tuple(prepared)

        def stack(axis: int, *leaves: Any) -> jax.Array:
            return jnp.stack(leaves, axis)

        return jax.tree.map(stack, _trunk_axes(prepared[0]), *prepared)

    def count(self, params: Any) -> int:
        """The number of trunks of joined parameters."""
        # Every model has an embedding, whose first axis is then that of trunks.
        return len(params) if isinstance(params, tuple) else len(params["embedding"])

    def start(self, params: Any, batch: int, branches: int, capacity: int) -> Cache:
        """Empty caches; see `LanguageModel.start`."""
        one = self.model.start(batch, branches, capacity)
        # A tuple: trunks that run one after the other, each with keys of its own.
        if isinstance(params, tuple):
            return one._replace(keys=[one.keys] * len(params))  # type: ignore[arg-type]
        count = self.count(params)
        keys = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one.keys)
        return one._replace(keys=keys)

    def extend(
        self,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        cache: Cache,
        embeddings: jax.Array | None = None,
    ) -> tuple[States, Cache]:
        """Runs the next tokens int32 [B, N, S], or `embeddings` [C, B, N, S, D], through all
        trunks; see `LanguageModel.extend`.

        Returns states [C, B, N, S, D], and the cache.
        """

        def extend_trunk(params: Any, prompt: Any, cache: Cache, embeddings: Any) -> Any:
            return self.model.extend(params, prompt, tokens, valid, cache, embeddings)

        return over_trunks(extend_trunk, params, prompt, cache, embeddings)


def over_trunks(function: Callable[..., Any], *arguments: Any) -> Any:
    """Maps a function of one trunk over all: its results are arrays [C, ...], and besides keys and
    states the same for all trunks.

    Arguments are parameters from `StackedModels.join`, caches (at least one) and prompts, arrays
    [C, ...], None.
    """
    cache = next(argument for argument in arguments if isinstance(argument, Cache))
    if isinstance(cache.keys, list):  # the keys of trunks that run one after the other
        parts = []
        for trunk in range(len(cache.keys)):
            parts.append(function(*(_part(argument, trunk) for argument in arguments)))
        return jax.tree.map(_join_parts, *parts, is_leaf=_is_keyed)
    results = jax.vmap(function, tuple(map(_axes, arguments)))(*arguments)
    return jax.tree.map(_with_shared_slots, results, is_leaf=_is_keyed)


def _is_keyed(value: Any) -> bool:
    return isinstance(value, Cache | EncodedPrompt)


def _with_shared_slots(result: Any) -> Any:
    """A cache or prompt whose leaves beside the keys are those of the first trunk; other results as
    they are.

    All trunks share one slot number: a slot for each would turn every update into a scatter.
    """
    if not _is_keyed(result):
        return result
    keys, *shared = result
    return type(result)(keys, *(leaf[0] for leaf in shared))


def _axes(argument: Any) -> Any:
    """`in_axes` of an argument: all trunks share what a cache or prompt has besides its keys."""
    if _is_keyed(argument):
        return type(argument)(0, *[None] * (len(argument) - 1))
    if isinstance(argument, dict):
        return _trunk_axes(argument)
    return None if argument is None else 0


def _trunk_axes(params: Any) -> Any:
    """Where the axis of trunks stands in each parameter: after that of stacked blocks, over which a
    loop runs.
    """
    return jax.tree.map_with_path(lambda path, _: int(block_stack.is_stacked(path)), params)


def _part(argument: Any, trunk: int) -> Any:
    """An argument for one trunk."""
    if _is_keyed(argument):
        return argument._replace(keys=argument.keys[trunk])
    return None if argument is None else argument[trunk]


def _join_parts(*parts: Any) -> Any:
    """The results of all trunks as one."""
    if _is_keyed(parts[0]):
        return parts[0]._replace(keys=[part.keys for part in parts])
    return jnp.stack(parts)
