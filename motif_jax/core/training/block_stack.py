"""Parameters of equal blocks, a tree for each block or stacked: the second form lets a program run
all blocks in one loop.

Networks name their blocks `block_0`, `block_1`, ... Checkpoints, optimisers and exports hold a tree
for each block. A program stacks the trees of L blocks to leaves [L, ...] under the name
`blocks_0_L`, and takes the stack apart at its end:

    {"decoder": {"block_0": {"kernel": [4, 4]}, "block_1": {"kernel": [4, 4]}, "final_norm": ...}}
    {"decoder": {"blocks_0_2": {"kernel": [2, 4, 4]}, "final_norm": ...}}

Blocks that differ in structure, shapes or dtypes fall into several stacks of successive equal ones.
Low-rank additions and quantised kernels, whose keys are whole paths
("decoder/block_1/attention/query"), are stacked in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

_BLOCK = re.compile(r"block_(\d+)")
_STACK = re.compile(r"blocks_(\d+)_(\d+)")


def looped(chosen: bool | None = None) -> bool:
    """Whether programs that are traced now run equal blocks in one loop. Only this function decides
    it by platform.

    A GPU's compiler takes minutes for the blocks of a large model one by one (Flan-T5-large: over
    100 s), and a loop costs little there. On a CPU compilation is quick, and a loop's slices of
    parameters cost time: there blocks stay apart.
    """
    return jax.default_backend() != "cpu" if chosen is None else chosen


def stacked_for_loop(tree: Any) -> Any:
    """The state of a training as its step's program works on it: with stacked blocks where these
    run in a loop.

    Then gradients, optimiser and targets are stacked too. A step stacks its state once and ends
    with `unstacked`. The stacks are temporary copies: of a GPT-2 (8 layers, width 256) with Adam
    they took 3.1 times the bytes of the parameters by the CPU compiler's account.
    """
    return stacked(tree) if looped() else tree


def stacked(tree: Any) -> Any:
    """Stacks the blocks in a tree of dicts, lists and (named) tuples; what is stacked already
    stays.
    """
    return _mapped(tree, _stack_blocks)


def unstacked(tree: Any) -> Any:
    """Reverts `stacked`."""
    return _mapped(tree, _unstack_blocks)


def runs(tree: Mapping[str, Any]) -> dict[tuple[int, int], Any]:
    """The stacks of one network's blocks, by (first block, last block + 1); empty without a
    stack.
    """
    stacks: dict[tuple[int, int], Any] = {}
    for name, part in tree.items():
        match = _STACK.fullmatch(name)
        if match:
            stacks[int(match[1]), int(match[2])] = part
    # By their numbers: as names, 'blocks_10_12' would come before 'blocks_2_10'.
    return dict(sorted(stacks.items()))


def is_stacked(path: Sequence[Any]) -> bool:
    """Whether a jax key path leads into a stack, whose leaves have a leading axis of blocks."""
    names = "/".join(str(getattr(key, "key", key)) for key in path).split("/")
    return any(_STACK.fullmatch(name) for name in names)


def _mapped(tree: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Applies `change` to every dict in a tree, inner ones first."""
    if isinstance(tree, Mapping):
        return change({name: _mapped(part, change) for name, part in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_mapped(part, change) for part in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(part, change) for part in tree)
    return tree


def _stack_blocks(tree: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    # (path before the block's name, path after it) -> number of the block -> its tree.
    families: dict[tuple[str, str], dict[int, Any]] = {}
    for path, subtree in tree.items():
        prefix, match, suffix = _split(path, _BLOCK)
        if match is None:
            result[path] = subtree
        else:
            families.setdefault((prefix, suffix), {})[int(match[1])] = subtree
    for (prefix, suffix), blocks in families.items():
        # The same leaf of all blocks of a run becomes one leaf [blocks, ...].
        for start, stop in _equal_runs(blocks):
            subtrees = [blocks[number] for number in range(start, stop)]
            result[f"{prefix}blocks_{start}_{stop}{suffix}"] = jax.tree.map(_stack, *subtrees)
    return result


def _unstack_blocks(tree: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path, subtree in tree.items():
        prefix, match, suffix = _split(path, _STACK)
        if match is None:
            result[path] = subtree
            continue
        leaves, structure = jax.tree.flatten(subtree)
        unstacked_leaves = [_unstack(leaf) for leaf in leaves]  # for each leaf a list over blocks
        for index, number in enumerate(range(int(match[1]), int(match[2]))):
            block_leaves = [blocks[index] for blocks in unstacked_leaves]
            result[f"{prefix}block_{number}{suffix}"] = jax.tree.unflatten(structure, block_leaves)
    return result


def _split(path: Any, pattern: re.Pattern[str]) -> tuple[str, re.Match[str] | None, str]:
    """Splits a path at its first name that matches: (path before it, match, path after it); ('',
    None, '') without one.
    """
    names = str(path).split("/")
    for index, name in enumerate(names):
        match = pattern.fullmatch(name)
        if match:
            prefix = "".join(f"{part}/" for part in names[:index])
            suffix = "".join(f"/{part}" for part in names[index + 1 :])
            return prefix, match, suffix
    return "", None, ""


def _equal_runs(blocks: Mapping[int, Any]) -> list[tuple[int, int]]:
    """Runs of successive blocks of equal structure, shapes and dtypes, as (first, last + 1)."""
    intervals: list[tuple[int, int]] = []
    previous: Any = None
    for number in sorted(blocks):
        leaves, structure = jax.tree.flatten(blocks[number])
        form = (structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves])
        if intervals and intervals[-1][1] == number and form == previous:
            start, _ = intervals[-1]
            intervals[-1] = (start, number + 1)
        else:
            intervals.append((number, number + 1))
        previous = form
    return intervals


# Functions of their own in the program, one for each shape: its length does not grow with the
# number of leaves.
@jax.jit
def _stack(*leaves: jax.Array) -> jax.Array:
    return jnp.stack(leaves)


@jax.jit
def _unstack(leaf: jax.Array) -> list[jax.Array]:
    return [leaf[block] for block in range(leaf.shape[0])]
