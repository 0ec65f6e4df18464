"""Trains an agent that speaks from recorded dialogues: behaviour cloning, implicit Q-learning, and
the other methods of docs/ilql.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.core.training import trainer
from motif_jax.core.training.trainer import OfflineRun
from motif_jax.ilql import text_run
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import (
    dialogue_data,
    dialogue_source,
    files,
    text_sources,
)
from motif_jax.ilql.dialogues.dialogue_source import DialogueSource
from motif_jax.ilql.evaluation import text_rollouts
from motif_jax.ilql.methods.text_methods import RULES, rule_of
from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.generation import Sampling
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
    method = config.method
    name = method.name
    rule = rule_of(name)

    q_min, q_max = method.q_min, method.q_max
    in_order = q_min is None or q_max is None or q_min < q_max
    checks.require_key(config, "method.q_min", in_order, f"below method.q_max={q_max}, or None")

    if rule.q == "none":
        reason = f"{name} has no values, which alone tell its actions apart"
        policy = method.policy
        checks.require_key(config, "method.policy.beta", policy.beta == 0, f"0: {reason}")
        checks.require_key(
            config, "method.policy.exponential", policy.exponential, f"True: {reason}"
        )

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
    if rule.q != "none":
        _check_values(config)
    if rule.proposes:
        # The rest asks for what these lack, such as a loss of the policy.
        _check_proposals(config)
        return
    if rule.q == "none":
        allowed = f"above 0: {name} learns nothing else"
        checks.require_key(config, "loss.policy", config.loss.policy > 0, allowed)
        checks.require_key(
            config, "initial.value", not config.initial.value, f"None: {name} has no values"
        )
        return

    if rule.q != "token":
        for key in ("cql", "margin"):
            allowed = f"0: {name} has one Q of the whole utterance, and none of other actions that the term could lower (--config.loss.{key}=0)"
            checks.require_key(config, f"loss.{key}", getattr(config.loss, key) == 0, allowed)

    # A language model that was not trained on the task's dialogues is not a policy: it does not
    # even end its utterances.
    uses_policy = method.separate_policy or rule.prior_reward or rule.bootstrap == "prior"
    if uses_policy and config.loss.policy == 0 and not config.initial.policy:
        raise UserError(
            f"config.initial.policy=None: method {name} with config.loss.policy=0 uses a policy that it does not train: name its run, "
            "--config.initial.policy=RUN"
        )


def _check_values(config: TextConfig) -> None:
    """Raises UserError where nothing teaches the values that the agent decodes by."""
    name = config.method.name
    rule = rule_of(name)
    weights = text_run.weights_of(config.loss, rule)
    has_values = False
    if config.initial.value:
        about = agent_folder.describe(config.initial.value, "initial.value")
        has_values = about["design"]["q"] != "none"
    if has_values:
        is_trained = weights.trains_values or weights.policy > 0
        checks.require_key(
            config, "loss.q", is_trained, "above 0, or another weight of config.loss"
        )
        return

    above = "above 0"
    # A method that proposes takes no run of values.
    if not rule.proposes:
        above = "above 0, or config.initial.value a run with values"
    teaches_q = any((weights.q, weights.conservative, weights.margin))
    allowed = f"{above}: {name} chooses what to say by Q"
    checks.require_key(config, "loss.q", teaches_q, allowed)
    # A method of the user's may have losses of its own, without V.
    reads_v = name in RULES and rule.bootstrap == "value" and not rule.proposes
    allowed = f"{above}: Q of {name} learns from V of the next action"
    checks.require_key(config, "loss.v", weights.v > 0 or not reads_v, allowed)


def _check_proposals(config: TextConfig) -> None:
    name = config.method.name
    candidates = config.candidates
    if not config.initial.policy:
        raise UserError(
            f"config.initial.policy=None: method {name} draws candidates from a policy that it does not train: name a run of bc, --config.initial.policy=RUN"
        )
    checks.require_key(
        config, "initial.value", not config.initial.value, f"None with method {name}"
    )
    for key in ("policy", "v", "margin"):
        allowed = f"0: {name} learns Q of candidates alone"
        checks.require_key(config, f"loss.{key}", getattr(config.loss, key) == 0, allowed)
    checks.require_key(
        config, "lora.patterns", not config.lora.patterns, f"empty: {name} learns heads alone"
    )
    folder = Path(candidates.folder or ".")
    usable = folder.is_dir() or not folder.exists()
    checks.require_key(config, "candidates.folder", usable, "a folder, or a new one")
    try:
        Sampling(False, candidates.temperature, candidates.top_k, candidates.top_p)
    except UserError as error:
        raise UserError(f"config.candidates.{error}") from None


def _check_data(config: TextConfig) -> None:
    source = dialogue_source.source_of(config)
    task = registry.make(source.task, source.options)
    dialogue_data.check_token_reward(
        config.token_reward, lambda: agent_folder.vocabulary_of(task).size
    )
    if config.task == dialogue_source.RECORDED:
        task.check(task.kinds[0], config.policy)
        text_sources.require_size(task)
    if source.path is None:
        _check_drawn(config, task)
    # Before the dialogues, whose room is what the model's positions leave.
    trunk_config = _check_network(config, source, task)

    for key, path in (("data", source.path), ("held_out.data", source.held_out)):
        if path is None:
            continue
        dialogues_of_key = files.read(path)
        dialogue_data.require_cutoff(config, dialogues_of_key, key)
        if key == "data":
            dialogue_data.require_rewards(config, dialogues_of_key)
        if task.learned_tokens():  # no tokenizer yet that dialogues could fit
            dialogue_data.require_any_action(config, dialogues_of_key, key)
        else:
            tokenizer = task.tokenizer()
            layout = text_run.layout_of(config, tokenizer.delimiters.pad, trunk_config)
            dialogue_data.require_actions(config, tokenizer, dialogues_of_key, layout, key)


def _check_drawn(config: TextConfig, task: TextTask) -> None:
    """Checks the keys of dialogues that are drawn from the task."""
    checks.choice(config, "kind", task.kinds)
    task.check(config.kind, config.policy)
    text_scores.check(task, plays=task.endless(config.kind))
    text_sources.require_size(task)
    if task.endless(config.kind) and (config.filter.top < 1 or config.filter.bottom < 1):
        raise UserError(
            f"config.filter.top={config.filter.top}, bottom={config.filter.bottom}: must be 1 without config.data: a stream has no best part"
        )


def _check_network(config: TextConfig, source: DialogueSource, task: TextTask) -> ModelConfig:
    """Checks the trunks' shapes, and how the agent plays its evaluations; returns the trunks'
    config.
    """
    trunk_config = text_run.model_config(config, source)
    text_run.check_shapes(config, trunk_config)
    agent = text_run.objective_of(config, trunk_config).agent
    text_rollouts.check(config.games, config.method, task, agent)
    return trunk_config


def _prepare_source(
    config: TextConfig, workdir: Path, stopped: Callable[[], bool]
) -> DialogueSource:
    """The source of dialogues; makes the files that the task or a finite kind of dialogues needs.
    Raises StoppedError.
    """
    source = dialogue_source.source_of(config)
    if source.path is not None:
        task = registry.make(config.task, source.options)
        # The dialogues exist; a tokenizer may have to be learned from the task's.
        options = text_sources.with_tokenizer(
            task, task.kinds[0], config.policy, workdir, config.seed, stopped
        )
        return source._replace(options=options)

    options = text_sources.prepare(
        config.task, source.options, config.kind, config.policy, workdir, config.seed, stopped
    )
    # A stream's games reward what is said, so that the task needs its scorer while it is drawn.
    source = source._replace(options=options, attach=text_scores.attach)
    if registry.make(config.task, options).endless(config.kind):
        return source
    path = text_sources.write_all(
        config.task, options, config.kind, config.policy, workdir, stopped
    )
    return source._replace(path=path)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    config = read_section(TextConfig, config_tree)

    # Called by `trainer.run` in the prepared run folder, into which this writes files.
    def build(stopped: Callable[[], bool]) -> OfflineRun | None:
        try:
            source = _prepare_source(config, workdir, stopped)
        except StoppedError:
            return None
        trunk_config = text_run.model_config(config, source)
        parallel = trainer.devices_of(config)
        training = text_run.build(config, workdir, source, parallel, trunk_config, stopped)
        if training is None:
            return None

        task = training.task
        text_task = registry.make(training.source.task, training.source.options)
        task.play = text_rollouts.evaluation_player(
            config, text_task, task.objective.agent, training.longest_action
        )
        learned = trainer.numbers_in(task.learned)
        tokens = task.objective.agent.model.config.vocab_size
        about = f"{config.method.name} on {config.task}: {learned:,} numbers to learn, {tokens:,} tokens; {training.amount}"
        turns = dialogue_source.turns_in_words(config, source)
        if turns:
            about = f"{about}; {turns}"
        return OfflineRun(task, about, lambda: text_run.export(training, workdir))

    return trainer.run(
        config, config_tree.to_dict(), workdir, IDENTITY, build, registry.FREE_OPTIONS
    )
