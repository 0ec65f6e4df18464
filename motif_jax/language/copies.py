"""Several copies of one network that run as one program.

ILQL (Snell et al. 2022) has three trunks: one for the policy, one for the values, and the values' target. On an accelerator their
parameters are stacked, and each matrix product of theirs is one product over a leading axis of copies [C], in training, in a prompt, and
in every step of a generation, where each copy has its own cache: many small products would leave it idle. A CPU is kept busy by one
copy, and its products over an axis of copies are slower (by a fifth, for trunks of 96 to 256), so there the copies follow each other within the
program. Parameters are kept apart, by name, as optimisers, checkpoints and targets want them; `Copies.join` brings them together inside
the program that runs them. Where two parts share a trunk, it is run once: `Roles`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.language.layers import KeyValues
from motif_jax.language.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.language.network import States

# Of what a copy has of its own and what all share.
_PROMPT = EncodedPrompt(keys=0, valid=None, length=None)  # type: ignore[arg-type]
_CACHE = Cache(keys=0, valid=None, slot=None, written=None)  # type: ignore[arg-type]


def stack(copies: Sequence[Any]) -> Any:
    """Trees of equal structure and shapes as one tree with a leading axis [C]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *copies)


@dataclasses.dataclass(frozen=True)
class Roles:
    """Which trunk plays which part; parts may share one.

    Attributes:
      trunk_of: the name of the trunk for each part, {"policy": "values", "values": "values", "target": "target"} say.
    """

    trunk_of: Mapping[str, str]

    @property
    def trunks(self) -> tuple[str, ...]:
        """The names of the trunks, each once, in the order of the copies."""
        return tuple(dict.fromkeys(self.trunk_of.values()))

    def trees(self, trunks: Mapping[str, Any]) -> list[Any]:
        """The parameters of the trunks in that order, for `Copies.join`."""
        return [trunks[name] for name in self.trunks]

    def of(self, part: str, states: States) -> States:
        """The states [...] of a part's trunk, of those of all [C, ...]."""
        index = self.trunks.index(self.trunk_of[part])
        return States(*(leaf[index] for leaf in states))


@dataclasses.dataclass(frozen=True)
class Copies:
    """A model with several sets of parameters; what it gives has a leading axis [C] where copies differ.

    Tokens, masks and positions are those of all copies. Keys of prompts and caches and all states are each copy's own. With dropout
    (`LanguageModel.with_dropout`) each copy has its own draws.

    Attributes:
      model: the network.
      together: each product is one over all copies; False: they follow each other; None: as is quicker where the program runs.
    """

    model: LanguageModel
    together: bool | None = None

    def join(self, trees: Sequence[Any]) -> Any:
        """The parameters of all copies as the other methods take them."""
        together = jax.default_backend() != "cpu" if self.together is None else self.together
        return stack(trees) if together else tuple(trees)

    def embed(self, params: Any, tokens: jax.Array) -> jax.Array:
        """Embeddings [C, ..., D] of tokens int32 [...]."""
        return self._run("embed", params, (tokens,), (None,), 0)

    def logits(self, params: Any, states: jax.Array) -> jax.Array:
        """Logits float32 [C, ..., V] of states [C, ..., D] after the last norm; of one copy alone `LanguageModel.logits` gives them."""
        return self._run("logits", params, (states,), (0,), 0)

    def prefill(
        self,
        params: Any,
        tokens: jax.Array | None,
        valid: jax.Array,
        embeddings: jax.Array | None = None,
        positions: jax.Array | None = None,
    ) -> tuple[States, EncodedPrompt]:
        """Runs prompts through all copies; see `LanguageModel.prefill`.

        Args:
          params: from `join`.
          tokens: int32 [B, T]; None with `embeddings`.
          valid: bool [B, T].
          embeddings: [C, B, T, D] in the place of tokens.
          positions: int32 [B, T].

        Returns:
          States [C, B, T, D], and the prompt, its keys with a leading axis [C].
        """
        axes = (None, None, None if embeddings is None else 0, None)
        return self._run("prefill", params, (tokens, valid, embeddings, positions), axes, (0, _PROMPT))

    def start(self, params: Any, batch: int, branches: int, capacity: int) -> Cache:
        """Empty caches; see `LanguageModel.start`. `params` says how many copies there are."""
        return self._run("start", params, (batch, branches, capacity), (None, None, None), _CACHE)

    def extend(
        self,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        cache: Cache | None = None,
        embeddings: jax.Array | None = None,
        positions: jax.Array | None = None,
    ) -> tuple[States, Cache | None]:
        """Runs the next tokens of continuations through all copies; see `LanguageModel.extend`.

        Args:
          params: from `join`.
          prompt: from `prefill`.
          tokens: int32 [B, N, S]; None with `embeddings`.
          valid: bool [B, N, S].
          cache: from `start` or an earlier call.
          embeddings: [C, B, N, S, D] in the place of tokens.
          positions: int32 [B, N, S].

        Returns:
          States [C, B, N, S, D], and the cache.
        """
        axes = (
            None if prompt is None else _PROMPT,
            None,
            None,
            None if cache is None else _CACHE,
            None if embeddings is None else 0,
            None,
        )
        arguments = (prompt, tokens, valid, cache, embeddings, positions)
        return self._run("extend", params, arguments, axes, (0, None if cache is None else _CACHE))

    def rows(self, cache: Cache, index: jax.Array) -> Cache:
        """The cache with other continuations, the same of every copy; see `Cache.rows`."""
        return self.mapped(lambda each: each.rows(index), cache)

    def mapped(self, function: Callable[..., Any], *given: Any) -> Any:
        """Maps a function of caches and prompts over those of every copy.

        Args:
          function: of one copy's; the same for all.
          given: the caches and prompts of all copies.
        """
        if isinstance(given[0].keys[0], KeyValues):
            axes = tuple(_CACHE if isinstance(each, Cache) else _PROMPT for each in given)
            ones = [each._replace(keys=jax.tree.map(lambda leaf: leaf[0], each.keys)) for each in given]
            out = _CACHE if isinstance(jax.eval_shape(function, *ones), Cache) else _PROMPT
            return jax.vmap(function, axes, out)(*given)
        found = [
            function(*(each._replace(keys=each.keys[copy]) for each in given))
            for copy in range(len(given[0].keys))
        ]
        return found[0]._replace(keys=tuple(each.keys for each in found))

    def step(
        self, params: Any, prompt: EncodedPrompt | None, logits: Callable[[States], jax.Array]
    ) -> Callable[[Cache, jax.Array, jax.Array], tuple[jax.Array, Cache]]:
        """The step of `generation.write` or `beams.search` whose carry is the cache of all copies.

        Args:
          params: from `join`.
          prompt: from `prefill`.
          logits: from the states [C, B, N, D] of a token to the logits [B, N, V] of the next, of whichever copies and heads.
        """

        def step(cache: Cache, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, Cache]:
            states, cache = self.extend(params, prompt, tokens[..., None], valid[..., None], cache)  # type: ignore[assignment]
            return logits(States(*(part[:, :, :, 0] for part in states))), cache

        return step

    def _run(
        self, name: str, params: Any, arguments: tuple[Any, ...], axes: tuple[Any, ...], out: Any
    ) -> Any:
        """Calls the model's `name` for every copy; `axes` and `out` say, as for vmap, what each copy has of its own."""
        apart, dropout = isinstance(params, tuple), self.model.dropout
        count = len(params) if apart else jax.tree.leaves(params)[0].shape[0]
        keys = None if dropout is None else jax.random.split(dropout, count)

        def one(key: jax.Array | None, copy: Any, *inner: Any) -> Any:
            model = self.model if key is None else self.model.with_dropout(key)
            # How large a cache is does not depend on the parameters.
            return model.start(*arguments) if name == "start" else getattr(model, name)(copy, *inner)

        if not apart:
            if name == "start":
                return jax.vmap(one, (None, 0), out)(None, params)
            return jax.vmap(one, (None if keys is None else 0, 0, *axes), out)(keys, params, *arguments)
        found = []
        for i, copy in enumerate(params):
            own = [_part(argument, axis, i) for argument, axis in zip(arguments, axes, strict=True)]
            found.append(one(None if keys is None else keys[i], copy, *own))
        return _joined(found, out)


def _part(argument: Any, axis: Any, index: int) -> Any:
    """The part of an argument for copy `index` when copies run in turn: keys are in a tuple, arrays have a leading axis."""
    if axis is None:
        return argument
    return (
        argument._replace(keys=argument.keys[index])
        if isinstance(axis, EncodedPrompt | Cache)
        else argument[index]
    )


def _joined(found: list[Any], out: Any) -> Any:
    if isinstance(out, tuple) and not hasattr(out, "_fields"):
        return tuple(_joined([each[i] for each in found], part) for i, part in enumerate(out))
    if isinstance(out, EncodedPrompt | Cache):
        return found[0]._replace(keys=tuple(each.keys for each in found))
    return None if out is None else stack(found)
