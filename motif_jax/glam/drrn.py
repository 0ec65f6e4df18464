"""DRRN, a baseline of GLAM: Q of each action's words after a prompt, from two small recurrent
encoders (He et al. 2016).

One GRU reads the prompt, another the action, and two layers compute Q from both; actions are drawn
with probabilities proportional to exp Q. Sizes and initialisation are those of the published agent.
He et al. encode bags of words, and take an inner product in place of the layers. Q is in units of
the reward that the agent learns from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.glam.agent import TOKENS, PromptReader
from motif_jax.glam.config import DrrnPolicy
from motif_jax.lm.tokens import FILE, Tokenizer, TokenRows, candidate_rows, padded
from motif_jax.nets.cores import Core
from motif_jax.nets.layers import Dense

# A memory stores token + 1, 0 after a prompt, in two bytes where the vocabulary fits.
_TWO_BYTES = 1 << 16


def tokenizer_file(tokenizer: str) -> Path:
    """The file of `config.network.tokenizer`; links stay unresolved, since the hub's copies link to
    files of other names.
    """
    path = Path(tokenizer)
    return (path / FILE if path.is_dir() else path).absolute()


class Drrn(nn.Module):
    """Q float32 [N, A] of actions int32 [A, S] after prompts int32 [N, L], padded with -1.

    Attributes:
      vocabulary: number of tokens.
      embedding: width of a token's vector; prompts and actions share the table.
      hidden: width of the recurrent states and of the layer before Q.
    """

    vocabulary: int
    embedding: int
    hidden: int

    @nn.compact
    def __call__(self, prompts: jax.Array, actions: jax.Array) -> jax.Array:
        chex.assert_rank([prompts, actions], 2)
        table = self.param(
            "embedding", nn.initializers.normal(1.0), (self.vocabulary, self.embedding)
        )
        prompt_states = _last_state(Core("gru", self.hidden, name="prompt"), table, prompts)
        action_states = _last_state(Core("gru", self.hidden, name="action"), table, actions)
        # Every prompt with every action: [N, A, 2 * hidden].
        pairs = jnp.broadcast_arrays(prompt_states[:, None], action_states[None])
        features = jnp.concatenate(pairs, axis=-1)
        # Uniform initialisation within 1 / sqrt(inputs), as published.
        hidden = nn.relu(
            Dense(self.hidden, limit=(2 * self.hidden) ** -0.5, name="hidden")(features)
        )
        return Dense(1, limit=self.hidden**-0.5, name="q")(hidden)[..., 0]


def _last_state(core: Core, table: jax.Array, rows: jax.Array) -> jax.Array:
    """The state float32 [N, H] after the last token of each row; an empty row reads one token.

    Args:
      table: float32 [V, E], a vector of each token.
      rows: int32 [N, L], tokens, padded with -1 on the right.
    """
    chex.assert_rank([table, rows], 2)
    count, length = rows.shape
    start = jnp.zeros((count, core.hidden_size))
    # Time first, as `Core` reads it: [L, N, E].
    embedded = table[jnp.maximum(rows, 0).T]
    no_reset = jnp.zeros((length, count), bool)
    states, _ = core(embedded, start, no_reset)
    # Padding after a row's last token is read as well, and its states are not used.
    last = jnp.maximum(jnp.sum(rows >= 0, axis=1) - 1, 0)
    return jnp.take_along_axis(states, last[None, :, None], axis=0)[0]


@dataclasses.dataclass(frozen=True)
class DrrnAgent(PromptReader):
    """Implements `nets.policy.PolicyNetwork`: the logits are Q of the actions, the value is the
    largest Q.
    """

    spec: EnvironmentSpec
    module: Drrn
    candidates: TokenRows

    @property
    def fields(self) -> tuple[str, ...]:
        return (TOKENS,)

    @property
    def _actions(self) -> jax.Array:
        return jnp.where(self.candidates.valid, self.candidates.tokens, -1)

    def init(self, key: jax.Array) -> Any:
        prompt = jnp.zeros((1, 1), jnp.int32)
        return jax.jit(self.module.init)(key, prompt, self._actions)["params"]

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """See `PolicyNetwork.apply`: Q float32 [T, B, A] and the largest Q float32 [T, B] of
        prompts int32 [T, B, L].
        """
        tokens = observation[TOKENS]
        chex.assert_rank([tokens, first], [3, 2])
        values = self.values(params, tokens.reshape(-1, tokens.shape[-1]))
        # Q as logits: actions are drawn by their softmax, as published.
        return values.reshape(*first.shape, -1), values.max(axis=-1).reshape(first.shape), state

    def values(self, params: Any, tokens: jax.Array) -> jax.Array:
        """Q float32 [N, A] after prompts int32 [N, L], padded with -1."""
        return self.module.apply({"params": params}, tokens, self._actions)  # type: ignore[return-value]

    def stored(self, observation: Mapping[str, jax.Array]) -> jax.Array:
        """Packs observations [..., l] for a memory: unsigned integers [..., L], padded to the full
        length with 0.
        """
        tokens = observation[TOKENS]
        # Batches are cropped to different lengths, and a memory has rows of one.
        missing = self.spec.observation[TOKENS].shape[0] - tokens.shape[-1]
        padding = [(0, 0)] * (tokens.ndim - 1) + [(0, missing)]
        filled = jnp.pad(tokens, padding, constant_values=-1)
        dtype = jnp.uint16 if self.module.vocabulary < _TWO_BYTES else jnp.uint32
        return (filled + 1).astype(dtype)

    def shown(self, stored: jax.Array) -> jax.Array:
        """Unpacks the result of `stored` to tokens int32 [..., L]."""
        return stored.astype(jnp.int32) - 1


def make(network: DrrnPolicy, spec: EnvironmentSpec) -> DrrnAgent:
    """Builds the agent. Raises UserError: an action has no tokens or those of another."""
    tokenizer = Tokenizer.read(tokenizer_file(network.tokenizer).parent)
    module = Drrn(tokenizer.size, network.embedding, network.hidden_size)
    return DrrnAgent(spec, module, padded(candidate_rows(tokenizer, spec.action_names)))
