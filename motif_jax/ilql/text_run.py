"""Builds a training on dialogues: the agent, its initial parameters, its data, the task, and the
exported folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import never
from motif_jax.core.training import run_files
from motif_jax.core.training.task import key_of
from motif_jax.ilql.agent import agent_folder, agent_start
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.config import LossWeights, TextConfig, TextMethod
from motif_jax.ilql.dialogues import dialogue_data
from motif_jax.ilql.dialogues.candidate_batches import with_candidates
from motif_jax.ilql.dialogues.collate import Quirks
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.dialogue_source import DialogueSource
from motif_jax.ilql.methods.implicit_q import ImplicitQSettings, Weights
from motif_jax.ilql.methods.text_methods import Rule, rule_of
from motif_jax.ilql.methods.text_objective import Objective
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.text_task import TextTraining
from motif_jax.lm import finetune_params, init_model, linear
from motif_jax.lm.config import Dropout, ModelConfig
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.sums_task import TrainingData


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


def settings_of(method: TextMethod, all_tokens: bool) -> ImplicitQSettings:
    """The numbers of the losses."""
    return ImplicitQSettings(
        **dataclasses.asdict(method.policy),
        discount=method.discount,
        expectile=method.expectile,
        q_min=method.q_min,
        q_max=method.q_max,
        cql_temperature=method.cql_temperature,
        margin=method.margin,
        monte_carlo=method.monte_carlo,
        all_tokens=all_tokens,
    )


def weights_of(loss: LossWeights, rule: Rule) -> Weights:
    """Weights of the loss terms; a method without values has the policy's alone."""
    if rule.q == "none":
        return Weights(q=0.0, v=0.0, policy=loss.policy)
    # The policy that proposes is frozen, and its proposals take the place of V.
    if rule.proposes:
        return Weights(q=loss.q, v=0.0, policy=0.0, conservative=loss.cql)
    # There is one Q of the whole utterance, and none of other actions that the conservative and
    # margin terms could lower.
    if rule.q != "token":
        return Weights(q=loss.q, v=loss.v, policy=loss.policy)
    return Weights(
        q=loss.q, v=loss.v, policy=loss.policy, conservative=loss.cql, margin=loss.margin
    )


def layout_of(config: TextConfig, pad: int, trunk_config: ModelConfig) -> ItemLayout:
    """The layout of batches; dialogues are cut to `max_len` and to the model's positions."""
    limits = [
        limit for limit in (config.max_len, room_of(config, trunk_config)) if limit is not None
    ]
    compat = config.compat
    quirks = Quirks(
        padded_positions=compat.ilql_padded_positions,
        whole_rewards=compat.ilql_utterance_int_reward,
        utterances_by_tokens=compat.ilql_utterance_truncation,
    )
    by_utterance = rule_of(config.method.name).q in ("utterance", "mean")
    return ItemLayout(
        pad=pad,
        by_utterance=by_utterance,
        max_len=min(limits, default=None),
        quirks=quirks,
        micro_batches=config.accumulate,
    )


def room_of(config: TextConfig, trunk_config: ModelConfig) -> int | None:
    """How many tokens a dialogue may have, so that a prefix and a further action fit; None: no
    limit.
    """
    if trunk_config.max_length is None:
        return None
    rule = rule_of(config.method.name)
    room = trunk_config.max_length
    if rule.prefix:
        # The return's embedding takes a position.
        room -= 1
    if rule.proposes:
        # A candidate continues a dialogue at any of its states, the last one, too.
        room -= config.candidates.max_tokens
    return room


def objective_of(config: TextConfig, trunk_config: ModelConfig) -> Objective:
    """The loss of a config."""
    dtype = jnp.dtype(config.dtype)
    model = LanguageModel(trunk_config, dtype, config.remat)
    method = config.method
    rule = rule_of(method.name)
    detached = {"v": method.detach_v, "q": method.detach_q, "policy": method.detach_policy}
    return Objective(
        agent=TextAgentNetwork(model, design_of(config), dtype),
        rule=rule,
        settings=settings_of(method, config.compat.ilql_policy_loss_norm),
        weights=weights_of(config.loss, rule),
        reward_scale=method.reward_scale,
        detach=tuple(part for part, is_detached in detached.items() if is_detached),
        spec=finetune_params.spec_of(config.lora),
        new_tokens=config.lora.new_tokens,
        chunk=config.logits_chunk,
        dropout=config.dropout > 0,
        target_dropout=config.compat.ilql_target_dropout,
        zero_after_last=config.compat.ilql_next_q_zero,
        chai_scores=config.compat.chai_scores,
    )


def model_config(config: TextConfig, source: DialogueSource) -> ModelConfig:
    """The trunks' config in the training: of the initial run, of `network.checkpoint`, or of the
    sizes in `network`, which must fit task and method.
    """
    tokens = agent_folder.vocabulary_of(registry.make(source.task, source.options))
    trunk_config = agent_start.model_config(config, tokens, design_of(config))
    return init_model.with_dropout(trunk_config, config.dropout)


class TextRun(NamedTuple):
    """A training, and what the command needs to describe it and to play its evaluations."""

    task: TextTraining
    source: DialogueSource  # of its dialogues, with task options that name all files
    amount: str  # size of the data, for the first line of a run
    longest_action: int  # tokens of an action at most
    dropout: Dropout  # rates of the exported trunks


def build(
    config: TextConfig,
    workdir: Path,
    source: DialogueSource,
    parallel: DataParallel,
    trunk_config: ModelConfig,
    stopped: Callable[[], bool] = never,
) -> TextRun | None:
    """Makes missing tokens in `workdir`, and the training; None after a request to stop.

    The caller sets `TextTraining.play` before the training.

    Args:
      source: of the dialogues; all files of its task exist.
      trunk_config: the trunks' config, from `model_config`.
    """
    objective = objective_of(config, trunk_config)
    vocabulary = agent_folder.vocabulary_of(registry.make(source.task, source.options))
    layout = layout_of(config, vocabulary.delimiters.pad, trunk_config)
    data = dialogue_data.open_data(config, source, workdir, layout, stopped)
    if data is None:
        return None

    start = agent_start.start(
        config.network.checkpoint,
        config.initial,
        objective,
        vocabulary,
        key_of(config.seed, "parameters"),
        config.network.new_rows,
    )
    digests = {**data.digests, **start.digests}

    # Recorded or drawn dialogues; CHAI's get the candidates of the frozen policy.
    batches: tuple[Any, Any] = data.batches
    if objective.rule.proposes:
        batches = with_candidates(
            config,
            workdir,
            objective.agent,
            start,
            vocabulary.delimiters,
            data.batches,
            stopped,
        )
    dialogues = TrainingData(*batches, digests, config.data or f"the stream of {config.task}")
    parameters = (start.learned, start.target, start.frozen)
    training = TextTraining(config, objective, parameters, dialogues, parallel)
    # The training's rates of dropout are no property of the agent.
    source_config = agent_start.model_config(config, vocabulary, design_of(config))
    return TextRun(
        training,
        source._replace(options=data.options),
        data.amount,
        data.longest_action,
        source_config.dropout,
    )


def export(run: TextRun, workdir: Path) -> Path:
    """Writes the agent of the evaluation chosen in summary.json; returns its folder."""
    task = run.task
    config = task.config
    source = run.source
    target = workdir / agent_folder.AGENT
    network = _with_dropout(task.objective.agent, run.dropout)

    def write(items: dict[str, Any], trained: dict[str, Any]) -> None:
        parts = (items["params"], items.get("target", {}), task.shared() or {})
        params = agent_start.agent_params(task.objective, *parts)
        tokenizer = registry.make(source.task, source.options).tokenizer()
        # What decoding and evaluation need: `SavedAgent.settings`.
        numbers = {
            **dataclasses.asdict(task.objective.settings),
            "reward_scale": config.method.reward_scale,
            "max_len": config.max_len,
            "polyak": config.method.polyak,
            "weights": dataclasses.asdict(task.objective.weights),
            "token_reward": dataclasses.asdict(config.token_reward),
            "longest_action": run.longest_action,
        }
        agent_folder.write(
            target,
            network,
            params,
            config.method.name,
            numbers,
            source.task,
            source.options,
            tokenizer,
            extra={"trained": trained},
            additions=agent_start.trunk_additions(task.objective, *parts),
        )

    shapes = {"params": task.learned}
    if task.target:
        shapes["target"] = task.target
    return run_files.export(workdir, target / agent_folder.FILE, shapes, write)


def _with_dropout(network: TextAgentNetwork, dropout: Dropout) -> TextAgentNetwork:
    """The network with these rates of dropout in its trunks' config."""
    trunk_config = dataclasses.replace(network.model.config, dropout=dropout)
    model = dataclasses.replace(network.model, config=trunk_config)
    return dataclasses.replace(network, model=model)


def check_shapes(config: TextConfig, trunk_config: ModelConfig) -> None:
    """Raises UserError for low-rank patterns without a match, or dialogues longer than the model's
    positions.
    """
    spec = finetune_params.spec_of(config.lora)
    if spec is not None:
        linear.matching(param_shapes(trunk_config), spec.patterns)
    room = room_of(config, trunk_config)
    if room is not None and room < 1:
        key = "network.max_length"
        remedy = "give a model with more"
        if rule_of(config.method.name).proposes:
            key = "candidates.max_tokens"
            remedy = "give a smaller one"
        raise UserError(
            f"config.{key}={checks.dotted(config, key)}: leaves no room for a dialogue in the {trunk_config.max_length} positions "
            f"of the model; {remedy}"
        )
    fits = config.max_len is None or room is None or config.max_len <= room
    checks.require_key(config, "max_len", fits, f"at most {room}, the positions that the model has")
