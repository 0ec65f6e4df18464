"""Runs the blocks of a stack in one loop over their stacked parameters, so that a program holds one
block however many there are.

The loop's carry is the hidden states and the cache of all layers, in which each block writes at its
place. Low-rank additions, quantised kernels and dropout keys are those that the blocks have one by
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core.scope import LazyRng

from motif_jax.core.training import block_stack
from motif_jax.lm import dropout, linear
from motif_jax.lm.layers import Context, KeyValues, LayerKeys

# False, True, or a policy of `jax.checkpoint_policies`.
Remat = bool | Callable[..., Any]


class Segment(NamedTuple):
    """Successive blocks of one structure: from block `first` up to the one before `last`; leaves
    are [last - first, ...].

    Attributes:
      params: of the blocks.
      values: of each active replacement of linear layers, by the layer's path in its block.
    """

    first: int
    last: int
    params: Any
    values: tuple[Mapping[str, Any], ...]

    @property
    def layers(self) -> tuple[jax.Array, Any, tuple[Mapping[str, Any], ...]]:
        """What the loop runs over: the blocks' numbers in the segment, their parameters and
        values.
        """
        return jnp.arange(self.last - self.first), self.params, self.values


@dataclasses.dataclass(frozen=True)
class BlockLoop:
    """The loop of one stack.

    Attributes:
      block: computes any of the blocks.
      path: of the stack in the network: 'decoder' or 'encoder'.
      params: the stack's parameters, with stacks of blocks (`block_stack.stacked`).
      key: of the stack's dropout; None: no dropout.
      remat: see `network.LanguageNetwork`.
      local_layers: for each layer whether it has a window (`Context.of_layer`); () without windows.
    """

    block: nn.Module
    path: str
    params: Mapping[str, Any]
    key: LazyRng | None = None
    remat: Remat = False
    local_layers: tuple[bool, ...] = ()

    def run(
        self,
        x: jax.Array,
        context: Context,
        relative: jax.Array | None,
        prefix: LayerKeys | None,
        own_keys: LayerKeys | None,
        encoded: LayerKeys | None,
    ) -> tuple[jax.Array, LayerKeys]:
        """Runs all blocks.

        Args:
          x: states [B, N, S, D].
          relative: float32 [1, 1, H, S, K], added to `context.bias` in every block; None: nothing
              is added.
          prefix, own_keys, encoded: see `Attention`, with a leading axis of layers.

        Returns:
          The states, and the keys and values of all layers: `own_keys` with those of the call
              written into it, or those of the call.
        """
        keys = []
        for segment in self._segments():
            body = self._body(segment, context, relative)
            # Keys that no block changes are sliced by the loop. The cache is its carry: as an input
            # and an output of each turn it would be copied whole.
            fixed = jax.tree.map(
                lambda leaf, at=segment: leaf[at.first : at.last], (prefix, encoded)
            )
            (x, own_keys), fresh = jax.lax.scan(body, (x, own_keys), (segment.layers, fixed))
            keys.append(fresh)
        # Without a cache each turn puts out its own keys, which the loop stacks by layer.
        return x, _joined(keys) if own_keys is None else own_keys

    def encoded_keys(self, states: jax.Array) -> KeyValues:
        """Keys and values [L, B, G, P, D] of an encoder's states [B, P, D] for every layer."""

        def of_segment(segment: Segment) -> KeyValues:
            def of_block(layer: Any) -> KeyValues:
                return self._apply(segment, layer, states, method="encoded_keys")

            return jax.lax.map(of_block, segment.layers)

        return _joined([of_segment(segment) for segment in self._segments()])

    def _body(
        self, segment: Segment, context: Context, relative: jax.Array | None
    ) -> Callable[..., Any]:
        """One turn of a segment's loop."""

        def block(x: jax.Array, layer: Any, *keys: Any) -> tuple[jax.Array, KeyValues]:
            of_layer = (
                context if relative is None else context._replace(bias=context.bias + relative)
            )
            if self.local_layers:
                # One body serves layers with a window and without, which are chosen by the layer's
                # number.
                is_local = jnp.asarray(self.local_layers)[segment.first + layer[0]]
                of_layer = of_layer.of_layer(is_local)
            return self._apply(segment, layer, x, of_layer, *keys)

        computed: Callable[..., tuple[jax.Array, KeyValues]] = block
        if self.remat:
            policy = None if self.remat is True else self.remat
            # The turns of a loop are apart: the compiler cannot compute once what is to be computed
            # again.
            computed = jax.checkpoint(block, policy=policy, prevent_cse=False)

        def body(carry: tuple[jax.Array, Any], part: Any) -> tuple[tuple[jax.Array, Any], Any]:
            x, cache = carry
            layer, (prefix, encoded) = part
            # No cache: a prompt, or continuations that no later call goes on with.
            if cache is None:
                x, fresh = computed(x, layer, prefix, None, encoded)
                return (x, None), fresh
            # The layer's keys [B, N, G, K, D] out of the cache of all; `_written` puts back only
            # the new slots.
            index = segment.first + layer[0]
            layer_keys = jax.tree.map(
                lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), cache
            )
            length = x.shape[2]
            x, layer_keys = computed(x, layer, prefix, layer_keys, encoded)
            return (x, _written(cache, layer_keys, index, context.slot, length)), None

        return body

    def _apply(
        self, segment: Segment, layer: Any, *arguments: Any, method: str = "__call__"
    ) -> Any:
        """Calls the block as that of a layer, a slice of `Segment.layers`."""
        index, params, values = layer
        with contextlib.ExitStack() as entered:
            # In the block, which is applied by itself, paths begin at its layers: the replacements
            # around the loop, by whole paths, match none of them.
            for replacement, layer_values in zip(linear.active(), values, strict=True):
                entered.enter_context(linear.computed_by(replacement.layer, layer_values))
            if self.key is not None:
                entered.enter_context(
                    dropout.of_block(self.key, segment.first, segment.last, index)
                )
            return self.block.apply({"params": params}, *arguments, method=method)

    def _segments(self) -> list[Segment]:
        """The blocks in segments; where all are equal, there is one."""
        params = block_stack.runs(self.params)
        # Additions may cover some of the blocks ('decoder/block_0/*'). A segment ends where any
        # stack ends, so that all blocks of a segment have the same leaves.
        values = [self._values(replacement.values) for replacement in linear.active()]
        ends = {end for bounds in params for end in bounds}
        ends |= {
            end
            for layers in values
            for stacks in layers.values()
            for bounds in stacks
            for end in bounds
        }
        borders = sorted(ends)
        return [
            Segment(
                first,
                last,
                _slice(params, first, last),
                tuple(_slices(layers, first, last) for layers in values),
            )
            for first, last in itertools.pairwise(borders)
        ]

    def _values(self, values: Mapping[str, Any]) -> dict[str, dict[tuple[int, int], Any]]:
        """The stack's own values of a replacement: stacks by their bounds, by the layer's path in
        its block.
        """
        stacks: dict[str, dict[tuple[int, int], Any]] = {}
        for path, value in block_stack.stacked(values).items():
            # 'decoder/blocks_0_2/attention/query': the stack, the run of blocks, and the layer in
            # its block.
            stack, _, inside = path.partition("/")
            name, _, rest = inside.partition("/")
            if stack == self.path:
                stacks.setdefault(rest, {}).update(block_stack.runs({name: value}))
        return stacks


def _slice(stacks: Mapping[tuple[int, int], Any], first: int, last: int) -> Any:
    """The part of the stack that holds the blocks from `first` to `last`; None where none does."""
    for (start, stop), part in stacks.items():
        if (start, stop) == (first, last):
            return part
        if start <= first and last <= stop:
            return jax.tree.map(lambda leaf, start=start: leaf[first - start : last - start], part)
    return None


def _slices(
    values: Mapping[str, Mapping[tuple[int, int], Any]], first: int, last: int
) -> dict[str, Any]:
    parts = {path: _slice(stacks, first, last) for path, stacks in values.items()}
    return {path: part for path, part in parts.items() if part is not None}


def _written(
    cache: KeyValues, layer_keys: KeyValues, index: jax.Array, slot: Any, length: int
) -> KeyValues:
    """The cache [L, B, N, G, K, D] with the `length` tokens at `slot` of one layer's cache: no
    other slots are copied.
    """

    def put(all_layers: jax.Array, one: jax.Array) -> jax.Array:
        # Slots are the last axis but one, of a layer's cache [B, N, G, K, D] and of all layers'.
        fresh = jax.lax.dynamic_slice_in_dim(one, slot, length, axis=-2)
        return jax.lax.dynamic_update_slice(all_layers, fresh[None], (index, 0, 0, 0, slot, 0))

    return jax.tree.map(put, cache, layer_keys)


def _joined(segments: list[KeyValues]) -> KeyValues:
    if len(segments) == 1:
        return segments[0]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *segments)
