"""Trains an agent that speaks from recorded dialogues: behaviour cloning, implicit Q-learning, and the other methods of docs/ilql.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.core.training import offline_run
from motif_jax.core.training.offline_run import OfflineRun
from motif_jax.ilql import text_run
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import candidate_batches, dialogue_data, files, text_sources
from motif_jax.ilql.dialogues import collected as dialogues
from motif_jax.ilql.dialogues.dialogue_data import DialogueSource
from motif_jax.ilql.evaluation import text_rollouts
from motif_jax.ilql.methods.text_methods import rule_of
from motif_jax.ilql.methods.text_ppo import PpoTraining
from motif_jax.ilql.tasks import registry, text_scores
from motif_jax.ilql.text_run import TextRun
from motif_jax.lm import tokenised
from motif_jax.lm.sampling import Sampling
from motif_jax.schema import read_section

IDENTITY = (
    "stage seed task options data kind policy held_out filter token_reward method loss network initial max_len length_buckets batch_size "
    "accumulate average max_steps evaluate_every evaluation_batches chunk_steps optimizer dropout logits_chunk lora dtype early_stopping num_devices "
    "sharding compat ppo candidates.count candidates.max_tokens candidates.together candidates.temperature candidates.top_k candidates.top_p"
).split()


def check(given: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, given, IDENTITY, registry.FREE_OPTIONS)
    config = read_section(TextConfig, given)
    offline_run.check(config, config.max_steps)
    _check_method(config)
    _check_data(config)


def _check_method(config: TextConfig) -> None:
    method, name, rule = config.method, config.method.name, rule_of(config.method.name)
    low, high = method.q_min, method.q_max
    good = low is None or high is None or low < high
    checks.require_key(config, "method.q_min", good, f"below method.q_max={high}, or None")
    top, bottom = config.filter.top, config.filter.bottom
    checks.require_key(config, "filter.top", top == 1 or bottom == 1, f"1 with filter.bottom={bottom}")
    if rule.proposes or rule.online:
        hosts = config.hosts.position().count
        what = "keeps candidates" if rule.proposes else "plays the episodes"
        checks.require(hosts == 1, "hosts.count", hosts, f"1: method {name} {what} of one host")
    if rule.proposes:
        _check_proposals(config)
        return
    if rule.online:
        text_run.check_ppo(config)
        return
    if rule.q == "none":
        allowed = f"above 0: {name} learns nothing else"
        checks.require_key(config, "loss.policy", config.loss.policy > 0, allowed)
        checks.require_key(config, "initial.value", not config.initial.value, f"None: {name} has no values")
        return
    # A language model that has seen no dialogue of the task is none: it does not even end what it says.
    takes = method.separate_policy or rule.prior_reward or rule.bootstrap == "prior"
    if takes and config.loss.policy == 0 and not config.initial.policy:
        raise UserError(
            f"config.initial.policy=None: method {name} with config.loss.policy=0 uses a policy that it does not train: name its run, "
            "--config.initial.policy=RUN"
        )


def _check_proposals(config: TextConfig) -> None:
    name, chosen = config.method.name, config.candidates
    if not config.initial.policy:
        raise UserError(
            f"config.initial.policy=None: method {name} draws candidates from a policy that it does not train: name a run of bc, --config.initial.policy=RUN"
        )
    checks.require_key(config, "initial.value", not config.initial.value, f"None with method {name}")
    for key in ("policy", "margin"):
        allowed = f"0: {name} learns Q of candidates alone"
        checks.require_key(config, f"loss.{key}", getattr(config.loss, key) == 0, allowed)
    checks.require_key(config, "lora.patterns", not config.lora.patterns, f"empty: {name} learns heads alone")
    place = Path(chosen.folder or ".")
    good = place.is_dir() or not place.exists()
    checks.require_key(config, "candidates.folder", good, "a folder, or a new one")
    try:
        Sampling(False, chosen.temperature, chosen.top_k, chosen.top_p)
    except UserError as error:
        raise UserError(f"config.candidates.{error}") from None


def _check_data(config: TextConfig) -> None:
    source = dialogue_data.source_of(config)
    task = registry.make(source.task, source.options)
    if rule_of(config.method.name).online:
        text_rollouts.require_playable(task, config.task)
        settings = text_run.model_config(config, source)
        text_run.check_shapes(config, settings)
        agent = text_run.objective_of(config, settings).agent
        return text_rollouts.check(config.games, config.method, task, agent)
    if config.task == dialogue_data.RECORDED:
        task.check(task.kinds[0], config.policy)
        text_sources.require_size(task)
    dialogue_data.token_reward_of(config.token_reward)
    if source.path is None:
        checks.choice(config, "kind", task.kinds)
        task.check(config.kind, config.policy)
        text_scores.check(task, plays=task.endless(config.kind))
        text_sources.require_size(task)
        if task.endless(config.kind) and (config.filter.top < 1 or config.filter.bottom < 1):
            raise UserError(
                f"config.filter.top={config.filter.top}, bottom={config.filter.bottom}: must be 1 without config.data: a stream has no best part"
            )
    settings = text_run.model_config(config, source)
    text_run.check_shapes(config, settings)
    text_rollouts.check(config.games, config.method, task, text_run.objective_of(config, settings).agent)
    for key, path in (("data", source.path), ("held_out.data", source.held_out)):
        if path is not None and task.learned_tokens():
            dialogue_data.require_turns(config, files.read(path), key)
        elif path is not None:
            tokenizer = task.tokenizer()
            plan = text_run.layout_of(config, tokenizer.delimiters.pad, settings)
            dialogue_data.require_actions(config, tokenizer, files.read(path), plan, key)


def _prepared(config: TextConfig, workdir: Path, stopped: Callable[[], bool]) -> DialogueSource:
    """The source of dialogues; makes the files that the task or a finite kind of dialogues needs. Raises StoppedError."""
    source = dialogue_data.source_of(config)
    if rule_of(config.method.name).online:
        return source
    if source.path is not None:
        task = registry.make(config.task, source.options)
        spoken = (task, task.kinds[0], config.policy, workdir, config.seed, stopped)
        return source._replace(options=text_sources.with_tokenizer(*spoken))
    given = (config.task, source.options, config.kind, config.policy, workdir)
    options = text_sources.prepared(*given, config.seed, stopped)
    source = source._replace(options=options, attach=text_scores.attach)
    if registry.make(config.task, options).endless(config.kind):
        return source
    path = text_sources.listed(config.task, options, config.kind, config.policy, workdir, stopped)
    return source._replace(path=path)


def _made(config: TextConfig, workdir: Path) -> list[str]:
    """The files of a run folder before training; without `config.data` also those of the task that its options do not name."""
    source, found = dialogue_data.source_of(config), [tokenised.TOKENS, candidate_batches.FOLDER]
    if registry.make(config.task, source.options).learned_tokens():
        found.append(dialogue_data.TOKENIZER)
    if source.path is None:
        found += [dialogues.DIALOGUES, *text_sources.made(source.options, workdir)]
    return found


def run(given: ConfigDict, workdir: Path) -> int:
    config = read_section(TextConfig, given)

    def build(stopped: Callable[[], bool]) -> OfflineRun | None:
        try:
            source = _prepared(config, workdir, stopped)
        except StoppedError:
            return None
        settings, parallel = text_run.model_config(config, source), offline_run.devices_of(config)
        found = text_run.build(config, workdir, source, parallel, settings, stopped)
        if found is None:
            return None
        task = found.task
        _let_play(config, found)
        learned, tokens = offline_run.numbers_in(task.learned), task.objective.agent.model.config.vocab_size
        about = f"{config.method.name} on {config.task}: {learned:,} numbers to learn, {tokens:,} tokens; {found.amount}"
        return OfflineRun(task, about, lambda: text_run.export(found, workdir))

    made = _made(config, workdir)
    return offline_run.run(config, given.to_dict(), workdir, IDENTITY, made, build, registry.FREE_OPTIONS)


def _let_play(config: TextConfig, found: TextRun) -> None:
    task, played = found.task, registry.make(found.source.task, found.source.options)
    agent, longest = task.objective.agent, found.longest_action
    online = isinstance(task, PpoTraining)
    # PPO learns from the tokens that were written, whatever the tokenizer makes of their texts.
    task.play = text_rollouts.evaluation_player(config, played, agent, longest, as_written=online)
    if isinstance(task, PpoTraining):
        layout = text_run.layout_of(config, played.tokenizer().delimiters.pad, agent.model.config)
        reward = dialogue_data.token_reward_of(config.token_reward)
        given = config.batch_size, config.seed, played, agent, layout, reward, longest
        task.rollouts = text_rollouts.rollout_player(*given)
