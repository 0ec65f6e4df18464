"""Reads the published ILQL code's model.pkl without running its code: up to three GPT-2 and the heads of V and Q."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.language.config import ModelConfig
from motif_jax.language.text_agent import POLICY, TARGET, VALUES, Design
from motif_jax.published import transformers_parts
from motif_jax.support.errors import UserError

# Trunks and heads here -> prefix of their tensors' names in the file. `pi` is an alias of the policy's head.
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
    """Reads a checkpoint of BC, DT, ILQL, CQL, Psi, utterance ILQL or CHAI, of attention `heads` (0: width / 64, as in GPT-2).

    BC has only `model.`, or `lm_policy.` after conversion; CHAI has `lm_policy.` and heads of one output.

    Raises:
      UserError: the file is damaged, is none of these, or has parts that do not match.
    """
    with transformers_parts.reading(path, "ILQL code") as tensors:
        return _assembled(tensors, heads)


def _part(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def _assembled(tensors: Mapping[str, np.ndarray], heads: int) -> PublishedAgent:
    parts = {name: _part(tensors, start) for name, start in _TRUNKS.items()}
    parts = {name: part for name, part in parts.items() if part}
    alone = list(parts) == [POLICY]
    proposes = alone and bool(_part(tensors, _HEADS["q1"]))
    if alone:
        # CHAI has only the policy's trunk; `convert_bc` gives BC's model the same name.
        parts = {VALUES: parts[POLICY]}
    if VALUES not in parts:
        raise UserError("has no tensor named model.*")
    used = {name for name in tensors if name.startswith(tuple(_TRUNKS.values()))}
    params: dict[str, Any] = {}
    if not _part(tensors, _HEADS["q1"]):
        # Without values the model is the policy.
        parts = {POLICY: parts[VALUES]}
        prefix = _part(tensors, _PREFIX)
        design = Design(q="none", prefix=bool(prefix))
        if prefix:
            params["prefix"] = {
                "kernel": np.asarray(prefix["weight"], np.float32).reshape(-1),
                "bias": np.asarray(prefix["bias"], np.float32),
            }
            used |= {f"{_PREFIX}{name}" for name in prefix}
    else:
        double = bool(_part(tensors, _HEADS["q2"]))
        names = ("q1", "q2") if double else ("q1",)
        learned = names if proposes else ("v", *names)
        online = {name: _head(tensors, _HEADS[name]) for name in learned}
        params["heads"] = online
        params["target_heads"] = {name: _head(tensors, _TARGETS[name]) for name in names}
        starts = (*(_HEADS[name] for name in learned), *(_TARGETS[name] for name in names))
        used |= {name for name in tensors if name.startswith(starts)}
        utterance = online["q1"]["output"]["bias"].shape == (1,)
        design = Design(
            q="mean" if proposes else "utterance" if utterance else "token",
            v=not proposes,
            double_q=double,
            separate_policy=POLICY in parts,
            separate_target=TARGET in parts,
        )
    found = {name: _trunk(part, heads) for name, part in parts.items()}
    configs = {name: config for name, (config, _) in found.items()}
    config = next(iter(configs.values()))
    if any(other != config for other in configs.values()):
        raise UserError("its trunks are of different sizes")
    params["trunks"] = {name: trunk for name, (_, trunk) in found.items()}
    # `pi` is an alias, saved in addition to its original.
    left = tuple(name for name in tensors if name not in used and not name.startswith("pi."))
    return PublishedAgent(config, design, params, left)


def _head(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, Any]:
    """Two linear layers with ReLU between them: entries 0 and 2 of a sequence."""
    return {
        layer: transformers_parts.linear(tensors, f"{start}{place}")
        for layer, place in (("hidden_0", 0), ("output", 2))
    }


def _trunk(part: Mapping[str, np.ndarray], heads: int) -> tuple[ModelConfig, Any]:
    plain = {name.removeprefix("transformer."): value for name, value in part.items()}
    plain = {name: value for name, value in plain.items() if not _MASK.fullmatch(name)}
    vocab, width = plain["wte.weight"].shape
    head = plain.pop("lm_head.weight", None)
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
