"""Applies an update only if all of its values are finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def all_finite(*trees: Any) -> jax.Array:
    """Whether every floating-point number in `trees` is finite: bool scalar. Other leaves
    (integers, keys) do not count.
    """
    checks = [
        jnp.all(jnp.isfinite(leaf))
        for leaf in jax.tree.leaves(trees)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    ]
    return jnp.all(jnp.stack(checks)) if checks else jnp.array(True)


def keep_if(finite: jax.Array, new: Any, old: Any) -> Any:
    """`new` where `finite` (bool scalar) holds, else `old`: trees of the same structure, shapes and
    dtypes.
    """
    finite = jax.lax.platform_dependent(finite, cpu=_computed_once, default=lambda flag: flag)
    return jax.tree.map(lambda updated, unchanged: jnp.where(finite, updated, unchanged), new, old)


def update_if(finite: jax.Array, update: Callable[..., Any], old: Any, *others: Any) -> Any:
    """`update(old, *others)` where `finite` (bool scalar) holds, else `old`.

    On CPU it is a branch, which XLA does not fuse with what follows: in a chain each result takes
    the memory of `old`.
    """

    def branch(old: Any, *others: Any) -> Any:
        return jax.lax.cond(finite, update, lambda old, *_: old, old, *others)

    def select(old: Any, *others: Any) -> Any:
        return jax.tree.map(
            lambda updated, unchanged: jnp.where(finite, updated, unchanged),
            update(old, *others),
            old,
        )

    return jax.lax.platform_dependent(old, *others, cpu=branch, default=select)


def _computed_once(flag: jax.Array) -> jax.Array:
    """`flag` (bool scalar), computed where XLA's fusion on CPU cannot see how.

    Else XLA repeats its computation, a term for each of n leaves, in each of the n programs that
    choose a leaf. On GPUs the host would wait.
    """
    return jax.lax.cond(flag, lambda: jnp.array(True), lambda: jnp.array(False))


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path, as in 'rows/blstats' or 'params/0/kernel'."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
