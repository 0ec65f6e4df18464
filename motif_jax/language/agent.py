"""A language model as an agent: it reads a prompt, scores the actions' words, and has a value (Carta et al. 2023, GLAM)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.language import config as language_config
from motif_jax.language import folder as folders
from motif_jax.language import scoring, weights
from motif_jax.language.heads import HeadConfig, Heads
from motif_jax.language.model import LanguageModel
from motif_jax.language.text import fetch
from motif_jax.language.tokens import Rows, Tokenizer, candidate_rows, padded
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError

TOKENS = "tokens"
SCORE, ACTIONS = "score", "actions"
POLICIES = (SCORE, ACTIONS)
DTYPES = ("float32", "bfloat16")
_EMBEDDINGS = ("embed", "shared")


def check(config: ConfigDict) -> None:
    """Checks the values of a `config.network` whose kind is 'language'.

    Raises:
      UserError: a value is not allowed; says the key and what is.
    """
    checks.choice(config, "network.policy", POLICIES)
    checks.choice(config, "network.dtype", DTYPES)
    checks.positive(config, "network.prompt_tokens")
    widths = tuple(config.network.head_widths)
    good = bool(widths) and all(isinstance(width, int) and width > 0 for width in widths)
    checks.require(good, "network.head_widths", widths, "whole numbers above 0, such as (1024, 1024)")
    checks.require(
        bool(config.network.model), "network.model", config.network.model, "a folder, or a name of the hub"
    )


@dataclasses.dataclass(frozen=True)
class LanguageAgent:
    """Implements `networks.policy.PolicyNetwork`.

    The logits of the policy are the log-probabilities of the actions' words after the prompt, or those of a head on the same
    state that the value is read from: the one from which a candidate's first token is predicted.

    Attributes:
      spec: of the environment, which shows `tokens` int32 [L], -1 behind the prompt.
      model: the network.
      heads: 'value', and 'actions' where the policy is a head.
      candidates: tokens of the actions.
      by_length: whether log-probabilities are divided by the number of tokens.
      source: folder of the model's weights; None: fresh ones.
      keep_embedding: of a fresh model, whether the embeddings are those of the folder all the same.
    """

    spec: EnvironmentSpec
    model: LanguageModel
    heads: Heads
    candidates: Rows
    by_length: bool
    source: Path | None
    keep_embedding: Path | None = None
    fields: tuple[str, ...] = (TOKENS,)

    def init(self, key: jax.Array) -> Any:
        """Returns {'model': the network's parameters, 'heads': fresh ones}, float32."""
        model_key, head_key = jax.random.split(key)
        if self.source is not None:
            params = jax.tree.map(jnp.asarray, folders.read(self.source).params)
        else:
            params = jax.jit(self.model.init)(model_key)
            if self.keep_embedding is not None:
                params = _with_embeddings(params, folders.read(self.keep_embedding).params)
        return {"model": params, "heads": self.heads.init(head_key)}

    def prepare(self, params: Any) -> Any:
        """The parameters as they are."""
        return params

    def initial_state(self, batch_size: int) -> Any:
        """No state: what came before stands in the prompt. An array of nothing, int32 [batch_size, 0]."""
        return jnp.zeros((batch_size, 0), jnp.int32)

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """See `PolicyNetwork.apply`."""
        tokens = observation[TOKENS]
        chex.assert_rank([tokens, first], [3, 2])
        logits, value = self.rows(params, tokens.reshape(-1, tokens.shape[-1]))
        return logits.reshape(*first.shape, -1), value.reshape(first.shape), state

    def rows(self, params: Any, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Logits float32 [N, A] and values float32 [N] after prompts int32 [N, L], -1 behind each."""
        valid = tokens >= 0
        prompt = jnp.maximum(tokens, 0)
        # A row of nothing, as programs are compiled with, reads one token.
        valid = valid.at[:, 0].set(True)
        if ACTIONS in self.heads.configs:
            states = self._opening_states(params["model"], prompt, valid)
            logits = self.heads.apply(params["heads"], ACTIONS, states)
        else:
            words, there = (jnp.asarray(x) for x in self.candidates)
            rows = (params["model"], prompt, valid, words, there)
            scores = scoring.score(self.model, *rows, by_length=self.by_length)
            states, logits = scores.states, scores.total
        return logits, self.heads.apply(params["heads"], "value", states)

    def _opening_states(self, params: Any, prompt: jax.Array, valid: jax.Array) -> jax.Array:
        """The states [N, D] from which the first token of any candidate would be predicted."""
        states, context = self.model.prefill(params, prompt, valid)
        if not self.model.config.encoder_layers:
            return scoring.last_state(states, valid).after
        start = jnp.full((len(prompt), 1, 1), self.model.config.start_id, jnp.int32)
        return self.model.extend(params, context, start, jnp.ones_like(start, bool))[0].after[:, 0, 0]


def make(config: ConfigDict, spec: EnvironmentSpec) -> LanguageAgent:
    """Builds the agent of `config.network` for an environment; reads no weights.

    Raises:
      UserError: the model's folder lacks something, or its candidates or prompts do not fit it.
    """
    if TOKENS not in spec.observation:
        raise UserError(
            "config.network.kind=language: the environment shows no tokens; choose a level of BabyAI-Text"
        )
    folder = fetch(config.model)
    settings = weights.settle_head(folder, language_config.read(folder))
    language_config.require_decoder(settings, "acts")
    tokenizer = Tokenizer.read(folder, settings.vocab_size)
    rows = candidate_rows(tokenizer, spec.action_names)
    longest = max(map(len, rows))
    room = settings.max_length
    if room is not None and config.prompt_tokens + (0 if settings.encoder_layers else longest) > room:
        raise UserError(
            f"config.network.prompt_tokens={config.prompt_tokens}: the model has {room} positions, for the actions too"
        )
    widths = tuple(config.head_widths)
    configs = {"value": HeadConfig(1, widths, "sigmoid")}
    if config.policy == ACTIONS:
        configs[ACTIONS] = HeadConfig(spec.num_actions, widths, "sigmoid")
    dtype = jnp.dtype(config.dtype)
    return LanguageAgent(
        spec=spec,
        model=LanguageModel(settings, dtype, config.remat),
        heads=Heads(settings.width, configs),
        candidates=padded(rows),
        by_length=config.by_length,
        source=folder if config.pretrained else None,
        keep_embedding=folder if config.keep_embedding and not config.pretrained else None,
    )


def _with_embeddings(params: Any, found: Any) -> Any:
    """`params` with every tensor whose name holds one of `_EMBEDDINGS` in the place of the fresh one."""

    def take(path: Any, fresh: jax.Array, kept: np.ndarray) -> jax.Array:
        names = "/".join(str(entry.key) for entry in path)
        return jnp.asarray(kept) if any(part in names for part in _EMBEDDINGS) else fresh

    return jax.tree_util.tree_map_with_path(take, params, found)
