"""Builds a training on dialogues: the agent, its initial parameters, its data, the task, and the exported folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import never
from motif_jax.core.training import records
from motif_jax.core.training.task import key_of
from motif_jax.ilql.agent import agent_folder, agent_start
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.config import LossWeights, TextConfig, TextMethod
from motif_jax.ilql.dialogues import dialogue_data
from motif_jax.ilql.dialogues.candidate_batches import with_candidates
from motif_jax.ilql.dialogues.collate import Quirks
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.dialogue_data import DialogueSource
from motif_jax.ilql.methods.implicit_q import ImplicitQSettings
from motif_jax.ilql.methods.text_methods import Rule, rule_of
from motif_jax.ilql.methods.text_objective import Objective, Weights
from motif_jax.ilql.methods.text_ppo import PpoTraining
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.text_task import TextTraining
from motif_jax.lm import finetune_params, init_model, linear
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.sums_task import TrainingData
from motif_jax.rl.algorithms import kl_penalty


def design_of(method: TextMethod) -> Design:
    """The parts of the method's agent."""
    rule = rule_of(method.name)
    return Design(
        q=rule.q,
        v=not rule.proposes,
        double_q=method.double_q,
        separate_policy=method.separate_policy and not rule.proposes,
        separate_target=method.separate_target and not rule.proposes,
        residual=method.advanced_mlp,
        prefix=rule.prefix,
    )


def settings_of(method: TextMethod, all_tokens: bool) -> ImplicitQSettings:
    """The numbers of the losses."""
    return ImplicitQSettings(
        **dataclasses.asdict(method.policy),
        discount=method.discount,
        expectile=method.expectile,
        q_min=method.q_min,
        q_max=method.q_max,
        temperature=method.cql_temperature,
        margin=method.margin,
        monte_carlo=method.monte_carlo,
        all_tokens=all_tokens,
    )


def weights_of(loss: LossWeights, rule: Rule) -> Weights:
    """Weights of the loss terms; a method without values has the policy's alone."""
    if rule.q == "none":
        return Weights(0.0, 0.0, loss.policy)
    if rule.proposes:
        return Weights(loss.q, 0.0, 0.0, loss.cql)
    tokens = rule.q == "token"
    return Weights(loss.q, loss.v, loss.policy, loss.cql * tokens, loss.margin * tokens)


def layout_of(config: TextConfig, pad: int, settings: ModelConfig) -> ItemLayout:
    """The layout of batches; dialogues are cut to the model's room."""
    sizes, compat = (config.max_len, room_of(config, settings)), config.compat
    most = min((size for size in sizes if size is not None), default=None)
    quirks = Quirks(
        compat.ilql_padded_positions, compat.ilql_utterance_int_reward, compat.ilql_utterance_truncation
    )
    by_utterance = rule_of(config.method.name).q in ("utterance", "mean")
    return ItemLayout(pad, by_utterance, most, quirks, config.accumulate)


def room_of(config: TextConfig, settings: ModelConfig) -> int | None:
    """Most tokens of a dialogue that leave room for a prefix and further actions; None: no limit."""
    if settings.max_length is None:
        return None
    rule, more = rule_of(config.method.name), 0
    if rule.proposes:
        more = config.candidates.max_tokens
    elif rule.online:  # play drops the beginning of longer texts
        more = dialogue_data.longest_action(config.games.decode.max_tokens, config.initial.policy)
    return settings.max_length - design_of(config.method).prefix - more


def objective_of(config: TextConfig, settings: ModelConfig) -> Objective:
    """The loss of a config."""
    model = LanguageModel(settings, jnp.dtype(config.dtype), config.remat)
    agent = TextAgentNetwork(model, design_of(config.method), jnp.dtype(config.dtype))
    rule = rule_of(config.method.name)
    return Objective(
        agent,
        rule,
        settings_of(config.method, config.compat.ilql_policy_loss_norm),
        weights_of(config.loss, rule),
        reward_scale=config.method.reward_scale,
        detach=tuple(name for name in ("v", "q", "policy") if getattr(config.method, f"detach_{name}")),
        spec=finetune_params.spec_of(config.lora),
        chunk=config.logits_chunk,
        dropout=config.dropout > 0,
        target_dropout=config.compat.ilql_target_dropout,
        zero_behind=config.compat.ilql_next_q_zero,
        chai_scores=config.compat.chai_scores,
    )


def model_config(config: TextConfig, source: DialogueSource) -> ModelConfig:
    """The trunks' config: of the initial run, of `network.checkpoint`, or of the sizes in `network`, which must fit task and method."""
    tokens = agent_folder.vocabulary_of(registry.make(source.task, source.options))
    settings = agent_start.model_config(config, tokens, design_of(config.method))
    return init_model.with_dropout(settings, config.dropout)


class TextRun(NamedTuple):
    """A training, and the settings of its evaluation episodes."""

    task: TextTraining | PpoTraining
    source: DialogueSource  # of its dialogues, with task options that name all files
    amount: str  # see `Data`
    longest_action: int


def build(
    config: TextConfig,
    workdir: Path,
    source: DialogueSource,
    parallel: DataParallel,
    settings: ModelConfig,
    stopped: Callable[[], bool] = never,
) -> TextRun | None:
    """Makes missing tokens in `workdir`, and the task; None after a request to stop.

    The caller sets `PpoTraining.rollouts` and `.play` before the training.
    """
    task, objective = registry.make(source.task, source.options), objective_of(config, settings)
    tokens = agent_folder.vocabulary_of(task)
    plan = layout_of(config, tokens.delimiters.pad, settings)
    data = dialogue_data.open_data(config, source, workdir, plan, stopped)
    if data is None:
        return None
    given = config.network.checkpoint, config.initial, objective, tokens
    start = agent_start.start(*given, key_of(config.seed, "parameters"))
    found = {**data.digests, **start.digests}
    training: TextTraining | PpoTraining
    if data.batches is None:
        played = TrainingData(None, None, found, f"the task {config.task}")
        training = PpoTraining(config, objective, start, plan.pad, played, parallel)
    else:
        batches: tuple[Any, Any] = data.batches
        if objective.rule.proposes:
            marks = tokens.delimiters
            batches = with_candidates(config, workdir, objective.agent, start, marks, data.batches, stopped)
        read = TrainingData(*batches, found, config.data or f"the stream of {config.task}")
        training = TextTraining(config, objective, start[:3], read, parallel)
    return TextRun(training, source._replace(options=data.options), data.amount, data.longest_action)


def export(run: TextRun, workdir: Path) -> Path:
    """Writes the agent of the evaluation chosen in summary.json; returns its folder."""
    task, config, source, target = run.task, run.task.config, run.source, workdir / agent_folder.AGENT

    def write(items: dict[str, Any], trained: dict[str, Any]) -> None:
        learned, followers = items["params"], items.get("target", {})
        params = agent_start.whole(task.objective, learned, followers, task.shared() or {})
        tokenizer = registry.make(source.task, source.options).tokenizer()
        # What decoding and evaluation need: `SavedAgent.settings`.
        facts = {
            **dataclasses.asdict(task.objective.settings),
            "reward_scale": config.method.reward_scale,
            "max_len": config.max_len,
            "polyak": config.method.polyak,
            "weights": dataclasses.asdict(task.objective.weights),
            "token_reward": dataclasses.asdict(config.token_reward),
            "longest_action": run.longest_action,
        }
        spoken = (source.task, source.options, tokenizer, {"trained": trained})
        agent_folder.write(target, task.objective.agent, params, config.method.name, facts, *spoken)

    wanted = {"params": task.learned, **({"target": task.target} if task.target else {})}
    return records.export(workdir, target / agent_folder.FILE, wanted, write)


def check_shapes(config: TextConfig, settings: ModelConfig) -> None:
    """Raises UserError for low-rank patterns without a match, or dialogues longer than the model's positions."""
    spec = finetune_params.spec_of(config.lora)
    if spec is not None:
        linear.matching(param_shapes(settings), spec.patterns)
    room = room_of(config, settings)
    if room is not None and room < 1:
        key = "candidates.max_tokens" if rule_of(config.method.name).proposes else "network.max_length"
        raise UserError(
            f"config.{key}={checks.dotted(config, key)}: leaves no room for a dialogue in the {settings.max_length} positions of the model"
        )
    fits = config.max_len is None or room is None or config.max_len <= room
    checks.require_key(config, "max_len", fits, f"at most {room}, the positions that the model has")


def check_ppo(config: TextConfig) -> None:
    """Raises UserError for values that do not fit method ppo."""
    settings = config.ppo
    kl_penalty.check(settings.kl, "ppo.kl")
    devices = len(jax.local_devices()[: config.num_devices]) // config.sharding.tensor
    parts = settings.minibatches * config.accumulate * devices
    allowed = f"a multiple of ppo.minibatches x accumulate x devices, {parts}"
    checks.require(config.batch_size % parts == 0, "batch_size", config.batch_size, allowed)
    rules = {
        "dropout": (config.dropout == 0, "0: the policy that plays is the one that learns"),
        "chunk_steps": (config.chunk_steps == 1, "1: each step is played by the policy of the step before"),
        "games.episodes": (config.games.episodes > 0, "above 0: evaluations are episodes"),
        "data": (config.data is None, "None: episodes are played, not read"),
        "initial.value": (not config.initial.value, "None: the value starts anew"),
        "initial.policy": (
            bool(config.initial.policy or config.network.checkpoint),
            "a run of train_text that speaks already (bc, say), or config.network.checkpoint a language model",
        ),
    }
    for key, (fits, allowed) in rules.items():
        checks.require_key(config, key, fits, allowed)
