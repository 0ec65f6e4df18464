"""Imports the published ILQL code's model.pkl without running its code: of an agent, up to three
GPT-2 and the heads of V and Q, or of the upvote model, a RoBERTa with its pooler and a head.

The run folder opens like one of train_text or train_upvote.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError, printable
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, Design, TextAgentNetwork
from motif_jax.ilql.config import TextMethod
from motif_jax.ilql.methods import RULES
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.reddit import upvote
from motif_jax.ilql.tasks.reddit.text_scorer import LIKED
from motif_jax.lm import config as configs
from motif_jax.lm import weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.published import pickles
from motif_jax.published.config import ImportIlqlConfig, ImportUpvoteConfig

# By what Q is of; without Q the prefix decides.
METHODS = {"token": "ilql", "utterance": "ilql_utterance", "mean": "chai"}
# Trunks and heads here -> prefix of their tensors' names in the file. `pi` is an alias of the
# policy's head.
_TRUNKS = {VALUES: "model.", POLICY: "lm_policy.", TARGET: "lm_target."}
_HEADS = {"v": "v.", "q1": "q.", "q2": "q2."}
_TARGETS = {"q1": "target_q.", "q2": "target_q2."}
_PREFIX = "reward_emb."
# Attention masks, which PyTorch's GPT-2 saves as tensors.
_MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
# Width of an attention head in all published sizes of GPT-2 and RoBERTa.
_HEAD_WIDTH = 64


def write(config: ImportIlqlConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes agent/ of a run of train_text. Raises UserError: the file holds no agent, or one of
    another task.
    """
    options = registry.json_options(config.options)
    tokenizer = registry.make(config.task, options).tokenizer()
    imported = read_agent(config.path, config.heads)
    if imported.config.vocab_size != tokenizer.size:
        raise UserError(
            f"config.file={config.file}: has {imported.config.vocab_size:,} tokens, the task {config.task} has {tokenizer.size:,}: name the "
            "file's task, and its tokenizer in config.options"
        )
    agent = TextAgentNetwork(LanguageModel(imported.config), imported.design)
    method = method_of(config, imported.design)
    # Of shapes alone: nothing of the file's size is drawn. A head of other sizes would be read out
    # of its bounds, in silence.
    fresh = jax.eval_shape(agent.init, jax.random.key(0))
    if jax.tree.map(jnp.shape, imported.params) != jax.tree.map(jnp.shape, fresh):
        raise UserError(
            f"config.file={config.file}: its heads do not fit its trunks: its method may be another one"
        )
    begin()
    settings = {
        **dataclasses.asdict(TextMethod(name=method, discount=config.discount)),
        "max_len": None,
    }
    agent_folder.write(
        workdir / agent_folder.AGENT, agent, imported.params, method, settings, config.task, options, tokenizer,
        {"imported": str(config.file)},
    )  # fmt: skip
    count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(imported.params))
    print(f"{workdir}: {method}, trunks {', '.join(imported.params['trunks'])}, {count:,} numbers")
    if imported.left_over:
        print(printable(f"not used: {', '.join(imported.left_over)}"))


def method_of(config: ImportIlqlConfig, design: Any) -> str:
    """The method that a file's parts belong to. Raises UserError: `config.method` names one of
    other parts.
    """
    method = METHODS.get(design.q) or ("dt" if design.prefix else "bc")
    if not config.method:
        return method
    rule = RULES[config.method]
    if (rule.q, rule.prefix) != (design.q, design.prefix):
        raise UserError(f"config.method={config.method}: {config.file} has the parts of {method}")
    return config.method


class PublishedAgent(NamedTuple):
    """A checkpoint's contents, with the parameters of a `TextAgent` as numpy arrays."""

    config: ModelConfig
    design: Design
    params: dict[str, Any]
    left_over: tuple[str, ...]


def read_agent(path: str | Path, heads: int = 0) -> PublishedAgent:
    """Reads a checkpoint of BC, DT, ILQL, CQL, Psi, utterance ILQL or CHAI, of attention `heads`
    (0: width / 64, as in GPT-2).

    BC has only `model.`, or `lm_policy.` after conversion; CHAI has `lm_policy.` and heads of one
    output.
    """
    tensors = _tensors(path)
    parts = {name: _part(tensors, prefix) for name, prefix in _TRUNKS.items()}
    parts = {name: trunk for name, trunk in parts.items() if trunk}
    # CHAI has only the policy's trunk; `convert_bc` gives BC's model the same name.
    has_only_policy = list(parts) == [POLICY]
    if has_only_policy:
        parts = {VALUES: parts[POLICY]}
    params: dict[str, Any] = {}
    q_names = [name for name in _TARGETS if _part(tensors, _HEADS[name])]
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
        design = Design(q="none", prefix=bool(_part(tensors, _PREFIX)))
        if design.prefix:
            layer = _linear(tensors, _PREFIX.removesuffix("."))
            # The kernel is [1, width] here, and [width] in a `TextAgent`.
            params["prefix"] = {"kernel": layer["kernel"].reshape(-1), "bias": layer["bias"]}
    trunks = {name: _trunk(part, heads) for name, part in parts.items()}
    # `write` compares the shapes of all trunks with this one's.
    config = next(iter(trunks.values()))[0]
    params["trunks"] = {name: trunk for name, (_, trunk) in trunks.items()}
    # `pi` is an alias, saved in addition to its original.
    used_prefixes = (*_TRUNKS.values(), *prefixes, "pi.")
    left_over = tuple(name for name in tensors if not name.startswith(used_prefixes))
    return PublishedAgent(config, design, params, left_over)


def _head(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, Any]:
    """Two linear layers with ReLU between them: entries 0 and 2 of a sequence."""
    return {
        "hidden_0": _linear(tensors, f"{start}0"),
        "output": _linear(tensors, f"{start}2"),
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
        "n_layer": _layers(plain, r"h\.(\d+)\."),
        "n_head": _heads_of(width, heads),
        "n_inner": plain["h.0.mlp.c_fc.bias"].shape[0],
        "tie_word_embeddings": tied,
    }
    named = {f"transformer.{name}": array for name, array in plain.items()}
    if head is not None and not tied:
        named["lm_head.weight"] = head
    return _model(values, named, "trunk")


def write_upvote(config: ImportUpvoteConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes model/ of a run of train_upvote. Raises UserError: the file is none, or has too few
    tokens.
    """
    tokenizer_folder = fetch(config.tokenizer or "", "tokenizer")
    imported = read_upvote_model(config.path, config.heads)
    if Tokenizer.read(tokenizer_folder).size > imported.config.vocab_size:
        raise UserError(f"config.tokenizer={config.tokenizer}: has more tokens than {config.file}")
    begin()
    upvote.write(
        workdir / upvote.MODEL,
        imported.config,
        imported.params,
        imported.heads,
        tokenizer_folder,
    )
    print(
        f"{workdir}: an upvote model of {imported.config.layers} layers and width {imported.config.width}"
    )


class PublishedScorer(NamedTuple):
    """A checkpoint's model config, model parameters and head parameters, numpy arrays."""

    config: ModelConfig
    params: Any
    heads: Any


def read_upvote_model(path: str | Path, heads: int = 0) -> PublishedScorer:
    """Reads a RoBERTa of attention `heads` (0: width / 64) and two layers."""
    tensors = _tensors(path)
    trunk = _part(tensors, "model.")
    head = {
        "hidden_0": _linear(trunk, "pooler.dense"),
        "hidden_1": _linear(tensors, "layers.0"),
        "output": _linear(tensors, "layers.2"),
    }
    # `position_ids` is a buffer of transformers, which counts upwards.
    named = {
        f"roberta.{name}": array for name, array in trunk.items() if "position_ids" not in name
    }
    config, params = _model(_roberta_config(trunk, heads), named, "its RoBERTa")
    return PublishedScorer(config, params, {LIKED: head})


def _roberta_config(trunk: Mapping[str, np.ndarray], heads: int) -> dict[str, Any]:
    vocabulary, width = trunk["embeddings.word_embeddings.weight"].shape
    return {
        "model_type": "roberta",
        "architectures": ["RobertaModel"],
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": _layers(trunk, r"encoder\.layer\.(\d+)\."),
        "num_attention_heads": _heads_of(width, heads),
        "intermediate_size": trunk["encoder.layer.0.intermediate.dense.bias"].shape[0],
        "max_position_embeddings": trunk["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": trunk["embeddings.token_type_embeddings.weight"].shape[0],
        # No tensor tells these: they are RoBERTa's.
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def _tensors(path: str | Path) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint by name."""
    named = pickles.tensors(pickles.read_checkpoint(path))
    # PyTorch's wrapper for several devices puts "module." before every name.
    return {name.removeprefix("module."): array for name, array in named}


def _part(tensors: Mapping[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    """The tensors whose names begin with `start`, by the rest of their names."""
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }


def _linear(tensors: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A linear layer, float32; PyTorch's kernels are [out, in]."""
    kernel = np.asarray(tensors[f"{name}.weight"], np.float32)
    bias = np.asarray(tensors[f"{name}.bias"], np.float32)
    return {"kernel": np.ascontiguousarray(kernel.T), "bias": bias}


def _layers(names: Iterable[str], pattern: str) -> int:
    """The number of layers; the group of `pattern` matches a layer's number."""
    matches = [re.match(pattern, name) for name in names]
    return 1 + max(int(match[1]) for match in matches if match)


def _heads_of(width: int, heads: int) -> int:
    """The number of attention heads: `heads`, or width / 64 for 0."""
    return heads or width // _HEAD_WIDTH


def _model(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], subject: str
) -> tuple[ModelConfig, Any]:
    """A model's config and float32 parameters from transformers' config and names of tensors;
    UserErrors name `subject`.
    """
    settings = configs.parse(config, subject)
    return settings, weights.collect(tensors.get, subject, settings)
