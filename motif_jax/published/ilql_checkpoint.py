"""Reads the published ILQL code's model.pkl without running its code: up to three GPT-2 and the
heads of V and Q.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, Design
from motif_jax.lm.config import ModelConfig
from motif_jax.published import transformers_parts

# Trunks and heads here -> prefix of their tensors' names in the file. `pi` is an alias of the
# policy's head.
_TRUNKS = {VALUES: "model.", POLICY: "lm_policy.", TARGET: "lm_target."}
_HEADS = {"v": "v.", "q1": "q.", "q2": "q2."}
_TARGETS = {"q1": "target_q.", "q2": "target_q2."}
_PREFIX = "reward_emb."
# Attention masks, which PyTorch's GPT-2 saves as tensors.
_MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")


class PublishedAgent(NamedTuple):
    """A checkpoint's contents, with the parameters of a `TextAgent` as numpy arrays."""

    config: ModelConfig
    design: Design
    params: dict[str, Any]
    left_over: tuple[str, ...]


def read(path: str | Path, heads: int = 0) -> PublishedAgent:
    """Reads a checkpoint of BC, DT, ILQL, CQL, Psi, utterance ILQL or CHAI, of attention `heads`
    (0: width / 64, as in GPT-2).

    BC has only `model.`, or `lm_policy.` after conversion; CHAI has `lm_policy.` and heads of one
    output.

    Raises:
      UserError: the file is damaged, is none of these, or has parts that do not match.
    """
    with transformers_parts.reading(path, "ILQL code") as tensors:
        return _assembled(tensors, heads)


def _assembled(tensors: Mapping[str, np.ndarray], heads: int) -> PublishedAgent:
    parts = {name: transformers_parts.part(tensors, prefix) for name, prefix in _TRUNKS.items()}
    parts = {name: trunk for name, trunk in parts.items() if trunk}
    # CHAI has only the policy's trunk; `convert_bc` gives BC's model the same name.
    has_only_policy = list(parts) == [POLICY]
    if has_only_policy:
        parts = {VALUES: parts[POLICY]}
    if VALUES not in parts:
        raise UserError("has no tensor named model.*")
    params: dict[str, Any] = {}
    q_names = [name for name in _TARGETS if transformers_parts.part(tensors, _HEADS[name])]
    # Which heads there are, and of how many outputs, tells what Q is of.
    if q_names:
        learned = q_names if has_only_policy else ["v", *q_names]
        params["heads"] = {name: _head(tensors, _HEADS[name]) for name in learned}
        params["target_heads"] = {name: _head(tensors, _TARGETS[name]) for name in q_names}
        prefixes = [*(_HEADS[name] for name in learned), *(_TARGETS[name] for name in q_names)]
        # An utterance has one Q; a state has one for each token of the vocabulary.
        has_one_output = params["heads"]["q1"]["output"]["bias"].shape == (1,)
        if has_only_policy:
            kind = "mean"
        elif has_one_output:
            kind = "utterance"
        else:
            kind = "token"
        design = Design(
            q=kind,
            v=not has_only_policy,
            double_q=len(q_names) == 2,
            separate_policy=POLICY in parts,
            separate_target=TARGET in parts,
        )
    else:
        # Without values the model is the policy.
        parts = {POLICY: parts[VALUES]}
        prefixes = [_PREFIX]
        design = Design(q="none", prefix=bool(transformers_parts.part(tensors, _PREFIX)))
        if design.prefix:
            layer = transformers_parts.linear(tensors, _PREFIX.removesuffix("."))
            # The kernel is [1, width] here, and [width] in a `TextAgent`.
            params["prefix"] = {"kernel": layer["kernel"].reshape(-1), "bias": layer["bias"]}
    trunks = {name: _trunk(part, heads) for name, part in parts.items()}
    config, *others = (config for config, _ in trunks.values())
    if any(other != config for other in others):
        raise UserError("its trunks are of different sizes")
    params["trunks"] = {name: trunk for name, (_, trunk) in trunks.items()}
    # `pi` is an alias, saved in addition to its original.
    used_prefixes = (*_TRUNKS.values(), *prefixes, "pi.")
    left_over = tuple(name for name in tensors if not name.startswith(used_prefixes))
    return PublishedAgent(config, design, params, left_over)


def _head(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, Any]:
    """Two linear layers with ReLU between them: entries 0 and 2 of a sequence."""
    return {
        "hidden_0": transformers_parts.linear(tensors, f"{start}0"),
        "output": transformers_parts.linear(tensors, f"{start}2"),
    }


def _trunk(part: Mapping[str, np.ndarray], heads: int) -> tuple[ModelConfig, Any]:
    plain = {name.removeprefix("transformer."): value for name, value in part.items()}
    plain = {name: value for name, value in plain.items() if not _MASK.fullmatch(name)}
    vocab, width = plain["wte.weight"].shape
    head = plain.pop("lm_head.weight", None)
    # A file of tied embeddings holds them twice.
    tied = head is None or np.array_equal(head, plain["wte.weight"])
    values = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocab,
        "n_positions": plain["wpe.weight"].shape[0],
        "n_embd": width,
        "n_layer": transformers_parts.layers(plain, r"h\.(\d+)\."),
        "n_head": transformers_parts.heads_of(width, heads),
        "n_inner": plain["h.0.mlp.c_fc.bias"].shape[0],
        "tie_word_embeddings": tied,
    }
    named = {f"transformer.{name}": array for name, array in plain.items()}
    if head is not None and not tied:
        named["lm_head.weight"] = head
    return transformers_parts.model(values, named, "trunk")
