"""Trains an agent that speaks from recorded dialogues: behaviour cloning, implicit Q-learning, and
the other methods of docs/ilql.md.

`run` makes the source of dialogues, and `build_training` the agent, its initial parameters, its
data and the task of the offline trainer; `export` writes the agent's folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.training import run_files, trainer
from motif_jax.core.training.task import key_of
from motif_jax.core.training.trainer import OfflineRun
from motif_jax.ilql.agent import agent_folder, agent_start
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.chai_candidates import with_candidates
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import dialogue_data, dialogue_files, task_files
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.dialogue_data import DialogueSource
from motif_jax.ilql.evaluation import text_setup
from motif_jax.ilql.methods import RULES, rule_of
from motif_jax.ilql.objective import Objective
from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.text_task import TextTraining
from motif_jax.lm import finetune_params, init_model, linear
from motif_jax.lm.config import Dropout, ModelConfig
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section

# A run is resumed only with the same values of these keys.
IDENTITY = (
    "stage",
    "seed",
    # data
    "task",
    "options",
    "data",
    "turns",
    "kind",
    "policy",
    "held_out",
    "filter",
    "token_reward",
    # method and network
    "method",
    "loss",
    "network",
    "initial",
    "compat",
    "candidates.count",
    "candidates.max_tokens",
    "candidates.together",
    "candidates.temperature",
    "candidates.top_k",
    "candidates.top_p",
    "games.decode.max_tokens",
    # training
    "max_len",
    "length_buckets",
    "batch_size",
    "accumulate",
    "average",
    "max_steps",
    "evaluate_every",
    "evaluation_batches",
    "chunk_steps",
    "optimizer",
    "dropout",
    "logits_chunk",
    "lora",
    "dtype",
    "early_stopping",
    "num_devices",
    "sharding",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY, registry.FREE_OPTIONS)
    config = read_section(TextConfig, config_tree)
    trainer.check(config, config.max_steps)
    _check_method(config)
    _check_data(config)


def _check_method(config: TextConfig) -> None:
    """Raises UserError for numbers of a method that would teach something else in silence."""
    method = config.method
    name = method.name
    rule = rule_of(name)

    q_min, q_max = method.q_min, method.q_max
    in_order = q_min is None or q_max is None or q_min < q_max
    checks.require_key(config, "method.q_min", in_order, f"below method.q_max={q_max}, or None")

    if rule.q == "none":
        reason = f"{name} has no values, which alone tell its actions apart"
        checks.require_key(config, "method.policy.beta", method.policy.beta == 0, f"0: {reason}")

    beta = method.policy.beta
    is_share = method.policy.exponential or 0 < beta <= 1
    allowed = (
        "above 0 and at most 1 with method.policy.exponential=False: weights are beta and 1 - beta"
    )
    checks.require_key(config, "method.policy.beta", is_share, allowed)

    top, bottom = config.filter.top, config.filter.bottom
    checks.require_key(
        config, "filter.top", top == 1 or bottom == 1, f"1 with filter.bottom={bottom}"
    )

    if rule.proposes:
        hosts = config.hosts.position().count
        allowed = f"1: method {name} keeps candidates of one host"
        checks.require(hosts == 1, "hosts.count", hosts, allowed)
        checks.require_key(
            config, "initial.value", not config.initial.value, f"None with method {name}"
        )
    elif rule.q not in ("token", "none"):
        for key in ("cql", "margin"):
            allowed = f"0: {name} has one Q of the whole utterance, and none of other actions that the term could lower (--config.loss.{key}=0)"
            checks.require_key(config, f"loss.{key}", getattr(config.loss, key) == 0, allowed)
    if rule.q != "none":
        _check_values(config)

    # A language model that was not trained on the task's dialogues is not a policy: it does not
    # even end its utterances.
    uses_policy = (
        method.separate_policy or rule.proposes or rule.prior_reward or rule.bootstrap == "prior"
    )
    trains_policy = rule.weights(config.loss).policy > 0
    if uses_policy and not trains_policy and not config.initial.policy:
        raise UserError(
            f"config.initial.policy=None: method {name} with config.loss.policy={config.loss.policy} uses a policy that it does not train: name its run, "
            "--config.initial.policy=RUN"
        )


def _check_values(config: TextConfig) -> None:
    """Raises UserError where nothing teaches the values that the agent decodes by."""
    name = config.method.name
    if config.initial.value:
        about = agent_folder.describe(config.initial.value, "initial.value")
        if about["design"]["q"] != "none":
            return
    rule = rule_of(name)
    weights = rule.weights(config.loss)
    above = "above 0, or config.initial.value a run with values"
    teaches_q = any((weights.q, weights.cql, weights.margin))
    allowed = f"{above}: {name} chooses what to say by Q"
    checks.require_key(config, "loss.q", teaches_q, allowed)
    # A method of the user's may have losses of its own, without V.
    reads_v = name in RULES and rule.bootstrap == "value" and not rule.proposes
    allowed = f"{above}: Q of {name} learns from V of the next action"
    checks.require_key(config, "loss.v", weights.v > 0 or not reads_v, allowed)


def _check_data(config: TextConfig) -> None:
    source = dialogue_data.source_of(config)
    task = registry.make(source.task, source.options)
    dialogue_data.check_token_reward(
        config.token_reward, lambda: agent_folder.vocabulary_of(task).size
    )
    if config.task == dialogue_data.RECORDED:
        task.check(task.kinds[0], config.policy)
        task_files.require_size(task)
    if source.path is None:
        _check_drawn(config, task)
    # Before the dialogues, whose room is what the model's positions leave.
    trunk_config = model_config(config, source)
    spec = finetune_params.spec_of(config.lora)
    if spec is not None:
        linear.matching(param_shapes(trunk_config), spec.patterns)
    agent = objective_of(config, trunk_config).agent
    text_setup.check_games(config.games, config.method, task, agent)

    for key, path in (("data", source.path), ("held_out.data", source.held_out)):
        if path is None:
            continue
        dialogues = dialogue_files.read(path)
        if key == "data":
            dialogue_data.require_rewards(config, dialogues)
        if task.learned_tokens():  # no tokenizer yet that dialogues could fit
            dialogue_data.require_any_action(config, dialogues, key)
        else:
            tokenizer = task.tokenizer()
            layout = layout_of(config, tokenizer.delimiters.pad, trunk_config)
            dialogue_data.require_actions(config, tokenizer, dialogues, layout, key)


def _check_drawn(config: TextConfig, task: TextTask) -> None:
    """Checks the keys of dialogues that are drawn from the task."""
    checks.choice(config, "kind", task.kinds)
    task.check(config.kind, config.policy)
    text_scores.check(task, plays=task.endless(config.kind))
    task_files.require_size(task)
    if task.endless(config.kind) and (config.filter.top < 1 or config.filter.bottom < 1):
        raise UserError(
            f"config.filter.top={config.filter.top}, bottom={config.filter.bottom}: must be 1 without config.data: a stream has no best part"
        )


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(TextConfig, config_tree)

    # Called by `trainer.run` in the prepared run folder, into which this writes files.
    def build(stopped: Callable[[], bool]) -> OfflineRun | None:
        try:
            source = _prepare_source(config, workdir, stopped)
        except StoppedError:
            return None
        training = build_training(config, workdir, source, trainer.devices_of(config), stopped)
        if training is None:
            return None

        task = training.task
        text_task = registry.make(training.source.task, training.source.options)
        task.play = text_setup.evaluation_player(
            config, text_task, task.objective.agent, training.longest_action
        )
        learned = trainer.numbers_in(task.learned)
        tokens = task.objective.agent.model.config.vocab_size
        about = f"{config.method.name} on {config.task}: {learned:,} numbers to learn, {tokens:,} tokens; {training.amount}"
        turns = dialogue_data.turns_in_words(config, source)
        if turns:
            about = f"{about}; {turns}"
        return OfflineRun(task, about, lambda: export(training, workdir))

    return trainer.run(
        config, config_tree.to_dict(), workdir, IDENTITY, build, registry.FREE_OPTIONS
    )


def _prepare_source(
    config: TextConfig, workdir: Path, stopped: Callable[[], bool]
) -> DialogueSource:
    """The source of dialogues; makes the files that the task or a finite kind of dialogues needs.
    Raises StoppedError.
    """
    source = dialogue_data.source_of(config)
    if source.path is not None:
        task = registry.make(config.task, source.options)
        # The dialogues exist; a tokenizer may have to be learned from the task's.
        options = task_files.with_tokenizer(
            task, task.kinds[0], config.policy, workdir, config.seed, stopped
        )
        return source._replace(options=options)

    options = task_files.prepare_files(
        config.task, source.options, config.kind, config.policy, workdir, config.seed, stopped
    )
    # A stream's games reward what is said, so that the task needs its scorer while it is drawn.
    source = source._replace(options=options, attach=text_scores.attach)
    if registry.make(config.task, options).endless(config.kind):
        return source
    path = task_files.write_dialogues(
        config.task, options, config.kind, config.policy, workdir, stopped
    )
    return source._replace(path=path)


class TextRun(NamedTuple):
    """A training, and what the command needs to describe it and to play its evaluations."""

    task: TextTraining
    source: DialogueSource  # of its dialogues, with task options that name all files
    amount: str  # size of the data, for the first line of a run
    longest_action: int  # tokens of an action at most
    dropout: Dropout  # rates of the exported trunks


def build_training(
    config: TextConfig,
    workdir: Path,
    source: DialogueSource,
    parallel: DataParallel,
    stopped: Callable[[], bool] = never,
) -> TextRun | None:
    """Makes missing tokens in `workdir`, and the training; None after a request to stop.

    The caller sets `TextTraining.play` before the training.

    Args:
      source: of the dialogues; all files of its task exist.
    """
    # THE LOSS AND ITS NETWORKS
    trunk_config = model_config(config, source)
    objective = objective_of(config, trunk_config)

    # DIALOGUES, TOKENS, BATCHES
    vocabulary = agent_folder.vocabulary_of(registry.make(source.task, source.options))
    layout = layout_of(config, vocabulary.delimiters.pad, trunk_config)
    data = dialogue_data.open_data(config, source, workdir, layout, stopped)
    if data is None:
        return None

    # INITIAL PARAMETERS
    start = agent_start.start(objective, vocabulary, key_of(config.seed, "parameters"))
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

    # THE TASK OF THE TRAINER
    dialogues = TrainingData(*batches, digests, config.data or f"the stream of {config.task}")
    parameters = (start.learned, start.target, start.frozen)
    training = TextTraining(config, objective, parameters, dialogues, parallel)
    # The training's rates of dropout are no property of the agent.
    source_config = agent_start.model_config(config, vocabulary)
    return TextRun(
        training,
        source._replace(options=data.options),
        data.amount,
        data.longest_action,
        source_config.dropout,
    )


def objective_of(config: TextConfig, trunk_config: ModelConfig) -> Objective:
    """The loss of a config, with the networks of its agent."""
    dtype = jnp.dtype(config.dtype)
    model = LanguageModel(trunk_config, dtype, config.remat)
    return Objective(config, TextAgentNetwork(model, agent_start.design_of(config), dtype))


def model_config(config: TextConfig, source: DialogueSource) -> ModelConfig:
    """The trunks' config in the training: of the initial run, of `network.checkpoint`, or of the
    sizes in `network`, which must fit task and method.
    """
    tokens = agent_folder.vocabulary_of(registry.make(source.task, source.options))
    trunk_config = agent_start.model_config(config, tokens)
    return init_model.with_dropout(trunk_config, config.dropout)


def layout_of(config: TextConfig, pad: int, trunk_config: ModelConfig) -> ItemLayout:
    """The layout of batches; dialogues are cut to `max_len` and to the model's positions."""
    limits = [
        limit for limit in (config.max_len, room_of(config, trunk_config)) if limit is not None
    ]
    by_utterance = rule_of(config.method.name).q in ("utterance", "mean")
    return ItemLayout(
        pad=pad,
        by_utterance=by_utterance,
        max_len=min(limits, default=None),
        compat=config.compat,
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
            **dataclasses.asdict(config.method),
            "loss": dataclasses.asdict(task.objective.weights),
            "max_len": config.max_len,
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
