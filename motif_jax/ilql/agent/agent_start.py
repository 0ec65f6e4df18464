"""Initial parameters of an agent, fresh, from a language model or from another run, divided into
trained and frozen ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import TOKENIZER, SavedAgent
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, Design
from motif_jax.ilql.config import InitialParameters, TextConfig
from motif_jax.ilql.dialogues.dialogue_tokens import Vocabulary
from motif_jax.ilql.methods import rule_of
from motif_jax.ilql.objective import Objective, heads_of, joined
from motif_jax.lm import config as configs
from motif_jax.lm import finetune_params, init_model, lora, weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer

# Values of `network.new_rows`.
END_OF_TEXT = "end_of_text"
# In these sizes a checkpoint and the initial runs must agree.
_SIZES = ("architecture", "width", "layers", "heads", "max_length", "vocab_size", "feed_forward")


class Start(NamedTuple):
    """Initial parameters, host arrays. The loss gets `target` as an entry of `frozen`.

    Attributes:
      learned: `trunks` or `additions` to them, `heads`, `prefix`: what a loss trains.
      target: `trunks` or `additions`, and `heads`: copies that follow `learned`; empty where the
          method has none.
      frozen: `trunks`, and `heads`, that no loss trains.
      digests: of the files that the parameters were read from.
    """

    learned: dict[str, Any]
    target: dict[str, Any]
    frozen: dict[str, Any]
    digests: dict[str, str]


def _folders(initial: InitialParameters) -> dict[str, str]:
    """The runs to begin from, by part: 'policy', 'value'."""
    return {key: run for key, run in dataclasses.asdict(initial).items() if run}


def design_of(config: TextConfig) -> Design:
    """The parts of the agent that a config trains."""
    method = config.method
    rule = rule_of(method.name)
    return Design(
        q=rule.q,
        # CHAI's heads stand on the frozen policy's trunk, and its proposals replace V.
        v=not rule.proposes,
        double_q=method.double_q,
        separate_policy=method.separate_policy and not rule.proposes,
        separate_target=method.separate_target and not rule.proposes,
        residual=method.advanced_mlp,
        prefix=rule.prefix,
        rank=_rank_of(config) if rule.q == "token" else None,
    )


def _rank_of(config: TextConfig) -> int | None:
    """The rank of the Qs' output layers: whole ones, several times the size of a vocabulary's
    table, would outweigh low-rank additions a hundredfold.
    """
    if config.initial.value:
        saved = Design(**agent_folder.describe(config.initial.value, "initial.value")["design"])
        if saved.qs:  # heads that go on keep their form
            return saved.rank
    spec = finetune_params.spec_of(config.lora)
    return None if spec is None else spec.rank


def model_config(config: TextConfig, tokens: Vocabulary) -> ModelConfig:
    """The trunks' config, see `train_text.model_config`; reads no weights.

    Its rates of dropout are those that a run or a checkpoint has, of fresh trunks those of the
    training.
    """
    design = design_of(config)
    _require_one_source(config.initial, design)
    of_runs: dict[str, ModelConfig] = {}
    for key, run in _folders(config.initial).items():
        about = agent_folder.describe(run, f"initial.{key}")
        if about["vocabulary"] != tokens.digest:
            raise UserError(
                f"config.initial.{key}={run}: was trained with other tokens than the task {config.task} has; give an agent of this task"
            )
        _require_parts(run, key, about, design)
        of_runs[key] = agent_folder.network_of(about).model.config
    # Their dropout rates may differ.
    with_equal_dropout = {
        init_model.with_dropout(of_run, config.dropout) for of_run in of_runs.values()
    }
    if len(with_equal_dropout) > 1:
        raise UserError(
            f"config.initial.value={config.initial.value}: has trunks of other sizes than config.initial.policy={config.initial.policy}"
        )
    of_run = next(iter(of_runs.values()), None)

    if config.network.checkpoint:
        if tokens.digest is None:
            raise UserError(
                f"config.network.checkpoint={config.network.checkpoint}: must be None while the task learns its own tokens; name those "
                'of the model with --config.options=\'{"tokenizer": "FOLDER"}\''
            )
        of_checkpoint = _of_checkpoint(config.network.checkpoint, tokens)
        if of_run is None:
            return of_checkpoint
        if any(getattr(of_checkpoint, size) != getattr(of_run, size) for size in _SIZES):
            raise UserError(
                f"config.network.checkpoint={config.network.checkpoint}: has trunks of other sizes than config.initial names"
            )
        return of_run
    if of_run is not None:
        return of_run

    # Neither a checkpoint nor a run: fresh trunks of the config's sizes.
    network = config.network
    delimiters = tokens.delimiters
    sizes = Sizes(network.width, network.layers, network.heads, max_length=network.max_length)
    special = {"start": delimiters.state_start, "pad": delimiters.pad, "end": delimiters.action_end}
    fresh = init_model.make("gpt2", sizes, tokens.size, special, "network")
    return init_model.with_dropout(fresh, config.dropout)


def _require_one_source(initial: InitialParameters, design: Design) -> None:
    """Raises UserError where a trunk that policy and values share would begin as two runs, or as
    two trunks of one.
    """
    if design.roles.trunk_of.get(POLICY) != VALUES or not (initial.policy and initial.value):
        return
    saved = Design(**agent_folder.describe(initial.policy, "initial.policy")["design"])
    reason = ""
    if Path(initial.policy).resolve() != Path(initial.value).resolve():
        reason = "is another run"
    elif saved.qs and saved.separate_policy:
        reason = "has a trunk for each"
    if reason:
        raise UserError(
            f"config.initial.value={initial.value}: policy and values share a trunk (config.method.separate_policy=False), and "
            f"config.initial.policy={initial.policy} {reason}: give one of the two"
        )


def _require_parts(run: str, key: str, about: Mapping[str, Any], design: Design) -> None:
    """Raises UserError where the agent of a run (`about`) has parts that cannot begin an agent of
    `design`.
    """
    saved = Design(**about["design"])
    origin = f"config.initial.{key}={run}: was trained by {about['method']}"
    if saved.prefix and (key != POLICY or not design.prefix):
        raise UserError(
            f"{origin}, whose policy is conditioned on a return: must be a run of another method"
        )
    heads = (design.q, design.double_q, design.residual)
    saved_heads = (saved.q, saved.double_q, saved.residual)
    if key != POLICY and saved.qs and heads != saved_heads:
        raise UserError(
            f"{origin}, and has heads of another kind than config.method asks for; give a run of this method"
        )


def _of_checkpoint(checkpoint: str, tokens: Vocabulary) -> ModelConfig:
    folder = fetch(checkpoint, "network.checkpoint")
    checkpoint_config = weights.read_config(folder)
    configs.require_decoder(checkpoint_config, "says")
    if checkpoint_config.encoder_layers:
        raise UserError(
            f"config.network.checkpoint={checkpoint}: must be a decoder, it is {checkpoint_config.architecture}"
        )
    _shared_rows(checkpoint, folder, checkpoint_config, tokens)
    weights.check(folder, checkpoint_config)
    return dataclasses.replace(checkpoint_config, vocab_size=tokens.size)


def _shared_rows(
    checkpoint: str, folder: Path, checkpoint_config: ModelConfig, tokens: Vocabulary
) -> int:
    """How many of a checkpoint's embedding rows the task's tokens use; UserError if its tokens are
    not the task's first ones.

    A checkpoint may have more rows than tokens: tables are padded to a round size.
    """
    if (folder / TOKENIZER).is_file():
        tokenizer = Tokenizer.read(folder, checkpoint_config.vocab_size)
        if tuple(tokenizer.decoded_alone(range(tokenizer.size))) == tokens.texts[: tokenizer.size]:
            # A special token may have no row (`Tokenizer.read`): it begins as a new one.
            return min(tokenizer.size, checkpoint_config.vocab_size)
    if checkpoint_config.vocab_size <= tokens.size:
        return checkpoint_config.vocab_size
    raise UserError(
        f"config.network.checkpoint={checkpoint}: has {checkpoint_config.vocab_size} rows of tokens, the task's tokenizer {tokens.size} "
        f"tokens: must be a model with the same {TOKENIZER}, but for the delimiters"
    )


def start(objective: Objective, tokens: Vocabulary, key: jax.Array) -> Start:
    """The initial parameters of a training: every trunk begins as the config's
    `network.checkpoint`, a folder or hub model, or fresh; its `initial` runs replace the policy or
    the values.

    Args:
      tokens: the task's; a checkpoint's embedding grows by those that it lacks. Their rows begin at
          that of the end of text, or at the mean of the table (`network.new_rows`).

    Raises:
      UserError: a file is damaged, or a low-rank pattern matches no layer.
    """
    config = objective.config
    checkpoint = config.network.checkpoint
    # A checkpoint replaces trunks of these; a run its trunks, and its heads if it has values.
    params = jax.device_get(objective.agent.init(key))
    digests: dict[str, str] = {}
    added_tokens = 0
    if checkpoint:
        folder = fetch(checkpoint, "network.checkpoint")
        checkpoint_config = weights.read_config(folder)
        rows = _shared_rows(checkpoint, folder, checkpoint_config, tokens)
        checkpoint_config, trunk = init_model.cut_vocabulary(
            checkpoint_config, weights.load(folder, checkpoint_config), rows
        )
        end = checkpoint_config.end_ids[0] if checkpoint_config.end_ids else rows
        # The end of text may have no row of its own in the table.
        like = end if config.network.new_rows == END_OF_TEXT and end < rows else None
        _, trunk = init_model.extend_vocabulary(
            checkpoint_config, trunk, tokens.size, jax.random.fold_in(key, 1), like
        )
        # One host array for all trunks: nothing changes it in place.
        params["trunks"] = dict.fromkeys(params["trunks"], jax.device_get(trunk))
        added_tokens = tokens.size - rows
        digests["network"] = weights.digest(folder, below=True)
    for name, run in _folders(config.initial).items():
        saved = agent_folder.load(run, f"initial.{name}")
        if name == POLICY:
            params = _with_policy(params, saved, objective.agent.design)
        else:
            params = _with_values(params, saved)
        digests[f"initial {name}"] = weights.digest(saved.folder, below=True)
    learned_rows = added_tokens if config.lora.new_tokens else 0
    learned, target, frozen = _divided(params, objective, learned_rows, jax.random.fold_in(key, 2))
    return Start(learned, target, frozen, digests)


def _with_policy(params: dict[str, Any], saved: SavedAgent, design: Design) -> dict[str, Any]:
    """`params` of an agent of `design` with the policy of a saved agent."""
    trunks = dict(params["trunks"])
    trunk = design.roles.trunk_of[POLICY]
    trunks[trunk] = saved.params["trunks"][saved.network.design.roles.trunk_of[POLICY]]
    if trunk == VALUES and TARGET in trunks:  # the target starts as a copy
        trunks[TARGET] = trunks[VALUES]
    params = {**params, "trunks": trunks}
    if saved.network.design.prefix:
        params["prefix"] = saved.params["prefix"]
    return params


def _with_values(params: dict[str, Any], saved: SavedAgent) -> dict[str, Any]:
    """`params` with the trunks and heads of a saved agent's values; of an agent without values its
    policy's trunk.
    """
    design = saved.network.design
    trunk_of = design.roles.trunk_of
    trunks = dict(params["trunks"])
    trunks[VALUES] = saved.params["trunks"][trunk_of[VALUES if design.qs else POLICY]]
    if TARGET in trunks:
        trunks[TARGET] = saved.params["trunks"][trunk_of[TARGET if design.qs else POLICY]]
    params = {**params, "trunks": trunks}
    if design.qs:
        params["heads"] = saved.params["heads"]
        params["target_heads"] = saved.params["target_heads"]
    return params


def _divided(
    params: dict[str, Any], objective: Objective, learned_rows: int, key: jax.Array
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """An agent's parameters as trained ones, targets and frozen ones, host arrays.

    With `objective.spec` fresh additions are trained: to layers of trunks, and to the last
    `learned_rows` rows of their tables.
    """
    trunks = params["trunks"]
    trained: list[str] = []
    if objective.learns_policy:
        trained.append(objective.agent.design.roles.trunk_of[POLICY])
    if (
        objective.agent.design.qs
        and objective.weights.trains_values
        and not objective.rule.proposes
    ):
        trained.append(VALUES)
    trained = list(dict.fromkeys(trained))  # policy and values may share a trunk

    learned: dict[str, Any] = {}
    target: dict[str, Any] = {}
    if objective.spec is None:
        learned["trunks"] = {name: trunks[name] for name in trained}
        if TARGET in trunks:
            target["trunks"] = {TARGET: trunks[TARGET]}
    else:
        if TARGET in trunks:
            # The target follows the values by its additions alone, so both have the same base.
            trunks = {**trunks, TARGET: trunks[VALUES]}
        keys = dict(zip(trunks, jax.random.split(key, len(trunks)), strict=True))
        keys[TARGET] = keys.get(VALUES, key)  # the target starts as a copy
        additions: dict[str, dict[str, Any]] = {}
        for name, trunk in trunks.items():
            additions[name] = jax.device_get(lora.init(keys[name], trunk, objective.spec))
            if learned_rows:
                additions[name][lora.NEW_TOKENS] = jax.device_get(
                    lora.init_rows(trunk, learned_rows)
                )
        learned["additions"] = {name: additions[name] for name in trained}
        if TARGET in trunks:
            target["additions"] = {TARGET: additions[TARGET]}

    frozen: dict[str, Any] = {}
    if "heads" in params:
        # Without a loss on values the weight decay alone would change their heads.
        if objective.weights.trains_values:
            learned["heads"] = params["heads"]
        else:
            frozen["heads"] = params["heads"]
        target["heads"] = params["target_heads"]
    if "prefix" in params:
        learned["prefix"] = params["prefix"]

    # All other trunks are frozen: with additions these are all of them.
    updated = {*learned.get("trunks", {}), *target.get("trunks", {})}
    rest = {name: trunk for name, trunk in trunks.items() if name not in updated}
    if rest:
        frozen["trunks"] = rest
    return jax.tree.map(np.asarray, (learned, target, frozen))


def trunk_additions(objective: Objective, learned: Any, target: Any, frozen: Any) -> dict[str, Any]:
    """Of a training of low-rank additions what other trunks have more than the policy's, by trunk
    (`lora.difference`): host arrays; without those that began as another model than the policy.

    Args:
      learned, target, frozen: see `Start`.
    """
    if objective.spec is None:
        return {}
    learned, target, frozen = jax.device_get((learned, target, frozen))
    params, additions = joined(learned, {**frozen, "target": target})
    trunks = params["trunks"]
    policy = objective.agent.design.roles.trunk_of[POLICY]
    return {
        name: lora.difference(addition, additions.get(policy), objective.spec)
        for name, addition in additions.items()
        if name != policy and _are_equal(trunks[name], trunks[policy])
    }


def _are_equal(params: Any, others: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, params, others)))


def agent_params(objective: Objective, learned: Any, target: Any, frozen: Any) -> dict[str, Any]:
    """The parameters of the agent that a training has reached, with additions merged: host arrays,
    float32.

    Args:
      learned, target, frozen: see `Start`.
    """
    learned, target, frozen = jax.device_get((learned, target, frozen))
    params, additions = joined(learned, {**frozen, "target": target})
    trunks = params["trunks"]
    if objective.spec is not None:
        for name, addition in additions.items():
            trunks[name] = lora.merged(trunks[name], addition, objective.spec)
    params["trunks"] = {name: trunks[name] for name in objective.agent.design.roles.trunks}
    heads = heads_of(learned, frozen)
    if heads is not None:
        params |= {"heads": heads, "target_heads": target["heads"]}
    return jax.tree.map(lambda leaf: np.asarray(leaf, jnp.float32), params)
