"""A text agent: a policy, and values of its tokens or utterances, on one to three trunks (Snell et
al. 2022, section 4.2).

The policy is a language model. V, and one or two Q of every token (or of a whole utterance), are
heads on the states of the trunk `values`; target Qs are copies of those heads on the states of the
trunk `target`. Parameters are a tree

    {"trunks": {name: a model's}, "heads": {"v", "q1", "q2"}, "target_heads": {"q1", "q2"},
     "prefix": {"kernel", "bias"}}

whose entries depend on the method. Decoding runs the trunks as one program (`stacked_trunks`) and
passes their states to `TextAgentNetwork.read`; `TextAgentNetwork.run` runs whole dialogues.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm import lora
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.network import States

POLICY, VALUES, TARGET = "policy", "values", "target"
V, QS = "v", ("q1", "q2")


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
        """The trunks' parameters in the order of [C], for `text_session.StackedModels.join`."""
        return [trunks[name] for name in self.trunks]

    def of(self, part: str, states: States) -> States:
        """The states [...] of a part's trunk, of the states [C, ...] of all trunks."""
        index = self.trunks.index(self.trunk_of[part])
        return States(*(leaf[index] for leaf in states))


@dataclasses.dataclass(frozen=True)
class Design:
    """The parts of an agent.

    Attributes:
      q: 'token': Q of every token of the vocabulary; 'utterance': Q of the utterance that ends
        here; 'mean': Q of the mean of the states so far (CHAI); 'none': the agent is a policy
        alone.
      double_q: two Qs; the smaller of their targets counts.
      separate_policy: the policy has a trunk of its own; else it shares that of the values.
      separate_target: the target Qs have a trunk of their own.
      residual: heads of ILQL's other form (`advanced_mlp`), on the states before the last norm.
      prefix: an embedding of the return precedes the tokens (decision transformer).
      rank: of the output layers of Q of every token (`HeadConfig.rank`); None: whole layers, as
          published.
    """

    q: str = "token"
    v: bool = True
    double_q: bool = True
    separate_policy: bool = True
    separate_target: bool = True
    residual: bool = False
    prefix: bool = False
    rank: int | None = None

    @property
    def roles(self) -> TrunkRoles:
        """Which trunk each part runs on."""
        if self.q == "none":
            return TrunkRoles({POLICY: POLICY})
        policy = POLICY if self.separate_policy else VALUES
        target = TARGET if self.separate_target else VALUES
        return TrunkRoles({POLICY: policy, VALUES: VALUES, TARGET: target})

    @property
    def qs(self) -> tuple[str, ...]:
        """The names of the Q heads."""
        if self.q == "none":
            return ()
        return QS if self.double_q else QS[:1]


class Readout(NamedTuple):
    """An agent's outputs at states.

    Attributes:
      logits: float32 [..., V] of the policy.
      values: float32 [...], V; None without a V.
      qs: online Qs, float32 [..., V] each; [...] of utterances.
      target_q: the smaller target Q, shaped as `qs`; None without Q.
    """

    logits: jax.Array
    values: jax.Array | None
    qs: tuple[jax.Array, ...]
    target_q: jax.Array | None


@dataclasses.dataclass(frozen=True)
class TextAgentNetwork:
    """The network of an agent; `dtype` is that of the heads' products."""

    model: LanguageModel
    design: Design
    dtype: Any = jnp.float32

    @property
    def heads(self) -> Heads:
        """V and the online Qs."""
        design = self.design
        width = self.model.config.width
        # D to 2D with ReLU, and the outputs, as published.
        form: dict[str, Any] = {"widths": (2 * width,)}
        if design.residual:
            form = {
                "kind": "residual",
                "widths": (4 * width,),
                "activation": "gelu",
                "state": "before",
                # The trunk's rate: every architecture has that of attention.
                "dropout": self.model.config.dropout.attention,
            }
        outputs = self.model.config.vocab_size if design.q == "token" else 1
        # Q of tokens: an output for each token of the vocabulary, at the state before it.
        configs = {name: HeadConfig(outputs, rank=design.rank, **form) for name in design.qs}
        if design.v and design.qs:
            configs = {V: HeadConfig(1, **form), **configs}
        return Heads(width, configs, self.dtype)

    @property
    def target_heads(self) -> Heads:
        """The target Qs, of the form of the online ones."""
        heads = self.heads
        configs = {name: heads.configs[name] for name in self.design.qs}
        return Heads(heads.width, configs, heads.dtype)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Fresh parameters, float32; target heads and trunks are copies of the online ones."""
        # Two trunks at most, since the target is a copy; heads; prefix.
        keys = jax.random.split(key, 4)
        trunks: dict[str, Any] = {}
        for name in self.design.roles.trunks:
            if name == TARGET:
                trunks[TARGET] = trunks[VALUES]
            else:
                trunks[name] = self.model.init(keys[len(trunks)])
        params: dict[str, Any] = {"trunks": trunks}
        if self.design.qs:
            params["heads"] = self.heads.init(keys[2])
            params["target_heads"] = {name: params["heads"][name] for name in self.design.qs}
        if self.design.prefix:
            # As PyTorch initialises a linear layer of one input.
            kernel, bias = jax.random.uniform(keys[3], (2, self.model.config.width), minval=-1.0)
            params["prefix"] = {"kernel": kernel, "bias": bias}
        return params

    def run(
        self,
        params: Any,
        tokens: jax.Array,
        valid: jax.Array,
        parts: tuple[str, ...] = (POLICY, VALUES, TARGET),
        returns: jax.Array | None = None,
        additions: Mapping[str, Any] | None = None,
        spec: lora.Spec | None = None,
        dropout: Mapping[str, jax.Array] | None = None,
    ) -> dict[str, States]:
        """Runs dialogues int32 [B, T], padded on the right, through the trunks of some parts, each
        trunk once.

        Args:
          params: of the agent; only `trunks` and `prefix` are read.
          parts: to run; parts that the agent lacks are skipped.
          returns: float32 [B], of the prefix, where the agent has one.
          additions: low-rank additions by trunk, with their `spec`.
          dropout: keys by trunk; a trunk without one has no dropout.

        Returns:
          States [B, T, D] of the tokens, without the prefix, by part.
        """
        chex.assert_equal_shape([tokens, valid])
        trunk_of = self.design.roles.trunk_of
        of_trunks: dict[str, States] = {}
        states = {}
        for part in parts:
            if part not in trunk_of:
                continue
            name = trunk_of[part]
            # Parts that share a trunk share its states, and its dropout.
            if name not in of_trunks:
                model = self.model
                if dropout and name in dropout:
                    model = model.with_dropout(dropout[name])
                with _added(additions, spec, name):
                    of_trunks[name] = self._states(model, params, name, tokens, valid, returns)
            states[part] = of_trunks[name]
        return states

    def logits(
        self,
        params: Any,
        states: jax.Array,
        additions: Mapping[str, Any] | None = None,
        spec: lora.Spec | None = None,
    ) -> jax.Array:
        """The policy's logits float32 [..., V] of its states [..., D] after the last norm; for
        additions see `run`.
        """
        name = self.design.roles.trunk_of[POLICY]
        with _added(additions, spec, name):
            return self.model.logits(params["trunks"][name], states)

    def _states(
        self,
        model: LanguageModel,
        params: Any,
        name: str,
        tokens: jax.Array,
        valid: jax.Array,
        returns: Any,
    ) -> States:
        trunk = params["trunks"][name]
        if not self.design.prefix:
            return model.prefill(trunk, tokens, valid)[0]
        chex.assert_shape(returns, tokens.shape[:1])
        prefix = self.prefix(params, returns)[:, None]
        embeddings = jnp.concatenate([prefix, model.embed(trunk, tokens)], axis=1)
        with_prefix = jnp.concatenate([jnp.ones_like(valid[:, :1]), valid], axis=1)
        # [B, 1 + T, D]: tokens stand one position later than without a prefix, as published.
        states, _ = model.prefill(trunk, None, with_prefix, embeddings)
        return States(*(leaf[:, 1:] for leaf in states))

    def prefix(self, params: Any, returns: jax.Array) -> jax.Array:
        """The embedding [B, D] of returns float32 [B], which precedes the tokens (decision
        transformer, Chen et al. 2021).
        """
        layer = params["prefix"]
        return (returns[:, None] * layer["kernel"] + layer["bias"]).astype(self.model.dtype)

    def read(self, params: Any, states: Mapping[str, States]) -> Readout:
        """The agent's outputs at states [..., D] by part; with q 'mean' (CHAI) `values` and
        `target` are means of states.
        """
        logits = self.logits(params, states[POLICY].after)
        names = self.design.qs
        if not names:
            return Readout(logits, None, (), None)
        heads = self.heads
        # Decoding does not read the online Qs, and its compiler leaves them out.
        qs = tuple(heads.apply(params["heads"], name, states[VALUES]) for name in names)
        target_qs = [heads.apply(params["target_heads"], name, states[TARGET]) for name in names]
        smaller = target_qs[0] if len(target_qs) == 1 else jnp.minimum(*target_qs)
        values = heads.apply(params["heads"], V, states[VALUES]) if V in heads.configs else None
        return Readout(logits, values, qs, smaller)

    def readouts(
        self, params: Any, tokens: jax.Array, valid: jax.Array, returns: jax.Array | None = None
    ) -> Readout:
        """The agent's outputs for the next token at every position of dialogues int32 [B, T]:
        `Readout` [B, T].
        """
        states = self.run(params, tokens, valid, returns=returns)
        if self.design.q == "mean":
            for part in (VALUES, TARGET):
                states[part] = States(*(running_mean(leaf, valid) for leaf in states[part]))
        return self.read(params, states)


def _added(
    additions: Mapping[str, Any] | None, spec: lora.Spec | None, name: str
) -> contextlib.AbstractContextManager[None]:
    """While active, the trunk's layers use their additions, if it has any."""
    if spec is None or additions is None or name not in additions:
        return contextlib.nullcontext()
    return lora.added(additions[name], spec)


def running_mean(states: jax.Array, valid: jax.Array) -> jax.Array:
    """Running means over T of states [B, T, D], without padding."""
    weights = valid[..., None].astype(jnp.float32)
    # float32, since a sum over a dialogue loses bfloat16's few digits.
    totals = jnp.cumsum(states.astype(jnp.float32) * weights, axis=1)
    counts = jnp.cumsum(weights, axis=1)
    return (totals / jnp.maximum(counts, 1.0)).astype(states.dtype)
