"""Agents of `train_text` as writers in a session of texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.decoding import Decoding, TokenOutputs
from motif_jax.ilql.agent.stacked_trunks import StackedModels
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, TextAgentNetwork
from motif_jax.ilql.methods.implicit_q import clipped
from motif_jax.lm.network import States


@dataclasses.dataclass(frozen=True)
class AgentDecoder:
    """An agent's networks as functions of their parameters: the policy's logits, V of the online
    trunk, Q of the target.

    The target Q is clipped to q_min and q_max, as in training. States are [C, ..., D], of C trunks
    as one program.
    """

    network: TextAgentNetwork
    q_min: float | None = None
    q_max: float | None = None

    @property
    def stacked(self) -> StackedModels:
        return StackedModels(self.network.model)

    def join(self, params: Any) -> Any:
        """The parameters of all trunks, see `StackedModels.join`."""
        return self.stacked.join(self.network.design.roles.trees(params["trunks"]))

    def outputs(self, params: Any, states: States) -> TokenOutputs:
        """The outputs [..., V] for the next token at states [C, ..., D]; without Q and V where
        tokens have no values.
        """
        design = self.network.design
        roles = design.roles
        if design.q != "token" or not design.v:
            # Values of whole actions are read at their ends, by `values`.
            trunk = params["trunks"][roles.trunk_of[POLICY]]
            return TokenOutputs(self.network.model.logits(trunk, roles.of(POLICY, states).after))
        readout = self.network.read(
            params, {part: roles.of(part, states) for part in roles.trunk_of}
        )
        assert readout.target_q is not None
        return TokenOutputs(
            readout.logits, clipped(readout.target_q, self.q_min, self.q_max), readout.values
        )

    def values(self, params: Any, last: States, mean: jax.Array) -> jax.Array | None:
        """Values of whole actions, float32 [...]; None where tokens have values.

        Args:
          last: [C, ..., D], the states of the actions' last tokens.
          mean: [C, ..., D], the mean of the states of all tokens up to them.
        """
        roles = self.network.design.roles
        kind = self.network.design.q
        if kind not in ("utterance", "mean"):
            return None
        # Heads read one of the two fields; of CHAI both are the mean.
        states = States(mean, mean) if kind == "mean" else last
        parts = {part: roles.of(part, states) for part in (VALUES, TARGET)}
        # The compiler leaves the policy's logits out of the program, since nothing reads them.
        readout = self.network.read(params, {**parts, POLICY: roles.of(POLICY, last)})
        assert readout.target_q is not None
        return clipped(readout.target_q, self.q_min, self.q_max)

    def prefix(self, params: Any, target_return: float) -> jax.Array | None:
        """An embedding [C, 1, 1, 1, D] that stands before every text; None for none."""
        if not self.network.design.prefix:
            return None
        return self.network.prefix(params, jnp.full((1,), target_return))[None, :, None, None]

    def check(self, decoding: Decoding) -> None:
        """Raises UserError for a way to decode that this agent cannot follow."""
        decoding.require_vocabulary(self.network.model.config.vocab_size)
        design = self.network.design
        if not decoding.logits and (design.q != "token" or not design.v):
            raise UserError(
                "config.decode.logits=False: must be True, the agent has no values of tokens"
            )
        compares = design.q != "none" or decoding.rerank_log_prob_weight != 0
        if decoding.candidates > 1 and not compares:
            raise UserError(
                "config.decode.kind=rerank: must be another, or config.decode.rerank_log_prob_weight other than 0: the agent has no values that rank texts"
            )
        # A session keeps a token of the text before an action, a decision transformer its prefix.
        longest = self.network.model.config.max_length
        if longest is not None and decoding.max_tokens + 2 > longest:
            raise UserError(
                f"config.decode.max_tokens={decoding.max_tokens}: must be at most {longest - 2}, the model has {longest} positions"
            )
