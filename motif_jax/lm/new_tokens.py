"""Learned additions to the rows of tokens that were added after a model's last one, while its
tables are frozen.

    rows = new_tokens.init(params, count=5)
    with new_tokens.added(rows):
        model.logits(params, ...)
    params = new_tokens.merged(params, rows)

Low-rank additions to layers cannot teach a model a token that it has never seen: an embedding that
no step changes stays where it began. Additions are {"embedding": [N, D]} and, where the head has a
table of its own, {"head": [N, D]}, for the last N rows; they begin at zero.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm.network import LanguageNetwork
from motif_jax.nets import products

# The name of these additions beside those of layers, see `lora`.
NAME = "new_tokens"
_EMBEDDING = "embedding"
_HEAD = "head"

Rows = Mapping[str, Any]


def init(params: Any, count: int) -> dict[str, jax.Array]:
    """Additions of zero to the last `count` rows of a model's tables, float32."""
    width = params[_EMBEDDING].shape[1]
    names = (_EMBEDDING, _HEAD) if _HEAD in params else (_EMBEDDING,)
    return {name: jnp.zeros((count, width)) for name in names}


@contextlib.contextmanager
def added(rows: Rows) -> Iterator[None]:
    """While active, all models read the last rows of their tables with these additions; without
    any, the tables as they are.

    Only the additions have gradients. The frozen tables are not copied, and no gradient of their
    size is computed.
    """
    if not rows:
        yield
        return

    def intercept(plain: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        result = plain(*arguments, **keywords)
        module = context.module
        # Every call of every module comes here, blocks and layers included.
        if not isinstance(module, LanguageNetwork):
            return result
        if context.method_name == "table_rows":
            return result + _embedded(
                rows[_EMBEDDING], arguments[0], module.config.vocab_size, result.dtype
            )
        if context.method_name == "logits_by_token":
            raise ValueError("`logits_by_token` has no additions to tokens: merge them first")
        if context.method_name == "token_products":
            # A tied head is the embedding table, so that its additions count there, too.
            return _with_products(result, arguments[0], rows.get(_HEAD, rows[_EMBEDDING]))
        return result

    with nn.intercept_methods(intercept):
        yield


def _embedded(rows: jax.Array, tokens: jax.Array, vocab_size: int, dtype: Any) -> jax.Array:
    """The additions [..., D] to the embeddings of tokens int32 [...]; zero for tokens that are not
    new.
    """
    first = vocab_size - len(rows)
    # Old tokens read row 0 and are set to zero after it.
    chosen = jnp.take(rows, jnp.maximum(tokens - first, 0), axis=0)
    return jnp.where((tokens >= first)[..., None], chosen, 0.0).astype(dtype)


def _with_products(of_table: jax.Array, states: jax.Array, rows: jax.Array) -> jax.Array:
    """Products float32 [..., V] of states [..., D] with all rows, the last ones with their
    additions [N, D].
    """
    added_products = products.einsum_float32("...d,nd->...n", states, rows.astype(states.dtype))
    return of_table.at[..., -len(rows) :].add(added_products)


def merged(params: Any, rows: Rows) -> Any:
    """Parameters with the additions in their tables: numpy arrays of the tables' dtype."""
    if not rows:
        return params
    changed = {**params, _EMBEDDING: _merged_table(params[_EMBEDDING], rows[_EMBEDDING])}
    if _HEAD in rows:
        kernel = np.asarray(params[_HEAD]["kernel"])
        changed[_HEAD] = {**params[_HEAD], "kernel": _merged_table(kernel.T, rows[_HEAD]).T}
    return changed


def _merged_table(table: Any, rows: Any) -> np.ndarray:
    table = np.array(table)
    # Rounded once, after the sum.
    last = table[-len(rows) :].astype(np.float32)
    table[-len(rows) :] = (last + np.asarray(rows, np.float32)).astype(table.dtype)
    return table
