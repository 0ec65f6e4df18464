"""The published defaults, each with where it is written, against the configs: plain and faithful.

Sources are sections of the published descriptions: "agent", "reward" and "annotation" are the
command lines of the published tool with the defaults of its flags; "0.1" to "0.8" the sections of
the description of its algorithms; "oni" its counterparts for ONI.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from motif_jax.core.config import available_cores, dotted
from motif_jax.rl import settings
from motif_jax.rl.config import agent_config
from tests.reward_fixtures import load_config


class Default(NamedTuple):
    """A published value, which `faithful` has; as `repr` shows it ours without a variant where that
    differs, and why.
    """

    value: Any
    source: str
    plain: str | None = None
    why: str = ""


MENDED = ("False", "a quirk, mended")
AGENT = {
    "seed": Default(777, "agent --seed"),
    "train_for_env_steps": Default(2_000_000_000, "agent --train_for_env_steps"),
    "batch_size": Default(4096, "agent --batch_size"),
    "rollout": Default(32, "agent --rollout, --recurrence"),
    "environment.name": Default("NetHackScore-v1", "agent --root_env"),
    "environment.max_episode_steps": Default(5000, "0.1, 0.8"),
    "network.image_encoder": Default("convnet_simple", "agent --encoder_type, --encoder_subtype"),
    "network.image_features": Default(512, "0.3"),
    "network.vector_features": Default(128, "0.3"),
    "network.message_features": Default(128, "0.3"),
    "network.obs_scale": Default(255.0, "agent --obs_scale"),
    "network.nonlinearity": Default("elu", "agent --nonlinearity"),
    "network.core": Default("gru", "agent --use_rnn, --rnn_type"),
    "network.hidden_size": Default(512, "agent --hidden_size"),
    "network.core_layers": Default(1, "agent --rnn_num_layers"),
    "network.separate_critic": Default(False, "agent --actor_critic_share_weights"),
    "network.dtype": Default("float32", "golden numbers"),
    "algorithm.name": Default("appo", "0.6"),
    "algorithm.gamma": Default(0.99, "agent --gamma"),
    "algorithm.advantage": Default("vtrace", "agent --with_vtrace"),
    "algorithm.rho_clip": Default(1.0, "agent --vtrace_rho"),
    "algorithm.c_clip": Default(1.0, "agent --vtrace_c"),
    "algorithm.gae_lambda": Default(0.95, "agent --gae_lambda"),
    "algorithm.ratio_min": Default(0.05, "0.6"),
    "algorithm.ratio_max": Default(20.0, "0.6"),
    "algorithm.clip_ratio": Default(0.1, "agent --ppo_clip_ratio"),
    "algorithm.clip_value": Default(1.0, "agent --ppo_clip_value"),
    "algorithm.value_coefficient": Default(0.5, "agent --value_loss_coeff"),
    "algorithm.exploration": Default("entropy", "agent --exploration_loss"),
    "algorithm.exploration_coefficient": Default(0.003, "agent --exploration_loss_coeff"),
    "algorithm.epochs": Default(1, "agent --ppo_epochs"),
    "algorithm.minibatches": Default(1, "agent --num_batches_per_iteration"),
    "algorithm.max_policy_lag": Default(10_000, "agent --max_policy_lag"),
    "algorithm.value_normalisation": Default("none", "0.6: values are in units of reward"),
    "optimizer.learning_rate": Default(1e-4, "agent --learning_rate"),
    "optimizer.schedule": Default("constant", "0.6"),
    "optimizer.warmup_steps": Default(0, "0.6"),
    "optimizer.b1": Default(0.9, "agent --adam_beta1"),
    "optimizer.b2": Default(0.999, "agent --adam_beta2"),
    "optimizer.eps": Default(1e-6, "agent --adam_eps"),
    "optimizer.max_gradient_norm": Default(4.0, "agent --max_grad_norm"),
    "reward.step": Default(None, "agent --checkpoint_num: the newest"),
    "reward.normalise": Default(True, "agent --rew_norm"),
    "reward.quantile": Default(0.5, "agent --eps_threshold_quantile"),
    "reward.count_exponent": Default(3.0, "agent --beta_count_exponent"),
    "reward.intrinsic_coefficient": Default(0.1, "agent --llm_reward"),
    "reward.extrinsic_coefficient": Default(0.1, "agent --extrinsic_reward"),
    "reward.extrinsic_scale": Default(0.1, "agent --reward_scale"),
    "reward.extrinsic_clip": Default(10.0, "agent --reward_clip"),
    "actors.envs_per_worker": Default(20, "agent --num_envs_per_worker"),
    "actors.groups_per_worker": Default(2, "0.8", "None", "2 without a GPU"),
    "actors.warmup_seconds": Default(
        10.0, "0.8", "0.0", "random first steps alone decorrelate the games"
    ),
    "save_every_steps": Default(10_000_000, "agent --save_every_steps"),
    "keep_checkpoints": Default(5, "agent --keep_checkpoints"),
    "stats_episodes": Default(1000, "agent --stats_avg"),
    "record_every": Default(0, "agent --save_ttyrec_every"),
    "log_every_seconds": Default(20.0, "agent --experiment_summaries_interval"),
    "wandb.enabled": Default(False, "agent --wandb"),
    "compat.sober_mask": Default(True, "0.1", *MENDED),
    "compat.oracle_patch_edge": Default(True, "0.1", *MENDED),
    "compat.seed_noop": Default(True, "0.1", *MENDED),
    "compat.crop_row_offset": Default(True, "0.2", *MENDED),
    "compat.message_count_off": Default(True, "0.2", *MENDED),
    "compat.vtrace_bootstrap": Default(True, "0.6", *MENDED),
    "compat.timeout_as_terminal": Default(True, "0.6", *MENDED),
    "compat.quantile_two_decimals": Default(True, "0.5", *MENDED),
}
REWARD = {
    "seed": Default(777, "reward --seed"),
    "dataset_dir": Default("motif_dataset", "reward --dataset_dir", "None", "asked for"),
    "annotator": Default(
        "llama70b_msg_defaultgoal_default", "0.7; reward --annotator", "None", "asked for"
    ),
    "batch_size": Default(1024, "reward --batch_size"),
    "epochs": Default(10, "reward --num_epochs"),
    "train_fraction": Default(0.8, "0.5"),
    "optimizer.learning_rate": Default(1e-5, "reward --reward_lr"),
    "optimizer.schedule": Default("constant", "0.5"),
    "optimizer.warmup_steps": Default(0, "0.5"),
    "optimizer.b1": Default(0.9, "golden/reward_train_step"),
    "optimizer.b2": Default(0.999, "golden/reward_train_step"),
    "optimizer.eps": Default(1e-8, "golden/reward_train_step"),
    "optimizer.max_gradient_norm": Default(0.0, "0.5: no clip"),
    "network.message": Default("lt_cnn", "agent --encoder_msg_model"),
    "network.status": Default(False, "agent --use_blstats"),
    "network.crop": Default(False, "agent --use_crop"),
    "network.glyphs": Default(False, "agent --use_glyphs"),
    "network.hidden_dim": Default(512, "agent --encoder_hidden_dim"),
    "network.embedding_dim": Default(128, "agent --encoder_embedding_dim"),
    "network.crop_dim": Default(16, "agent --encoder_crop_dim"),
    "network.num_layers": Default(2, "agent --encoder_num_layers"),
    "network.dtype": Default("float32", "golden numbers"),
    "labels.soft": Default(False, "0.5"),
    "labels.smoothing": Default(0.0, "0.5"),
    "labels.confidence": Default("none", "0.5"),
    "labels.ties": Default("half", "0.5"),
    "ensemble.members": Default(1, "0.4"),
    "early_stopping.patience": Default(0, "0.5"),
    "wandb.enabled": Default(False, "agent --wandb"),
    "compat.running_statistics": Default(True, "0.5", *MENDED),
    "compat.quantile_two_decimals": Default(True, "0.5", *MENDED),
    "compat.glyph_crop_centre": Default(True, "0.4", *MENDED),
}
ANNOTATION = {
    "annotator": Default(
        "vllm", "annotation --annotator-type", "'lexicon'", "runs without a language model"
    ),
    "goal": Default("defaultgoal", "annotation --goal-key"),
    "prompt.version": Default(
        "default", "annotation --prompt-version", "'auto'", "the annotator's own"
    ),
    "name": Default("", "annotation --custom-annotator-string"),
    "num_shards": Default(1, "annotation --n-annotation-chunks"),
    "shard_index": Default(0, "annotation --chunk-number"),
    "restart": Default(False, "annotation --ignore-existing"),
    "attempts": Default(1, "0.7: a rerun asks unknown ones again, and nothing else does"),
    "orders": Default("given", "0.7: no swap", "'auto'", "one of (a, b) and (b, a), or both"),
    "captions.messages": Default(True, "annotation --use-messages"),
    "captions.status": Default(False, "annotation --use-blstats"),
    "answer.mode": Default("analysis", "0.7", "'auto'", "the annotator's own"),
    "answer.retry": Default(True, "0.7"),
    "sampling.temperature": Default(0.1, "0.7"),
    "sampling.top_k": Default(50, "0.7"),
    "sampling.top_p": Default(0.95, "0.7"),
    "sampling.max_tokens": Default(4096, "0.7"),
    "vllm.model": Default(
        "meta-llama/Llama-2-70b-chat-hf", "annotation --llm-size", "''", "asked for"
    ),
    "vllm.tensor_parallel_size": Default(8, "annotation --num-gpus", "1", "what every machine has"),
    "vllm.in_flight": Default(2000, "annotation --batch-size"),
    "compat.answer_first_match": Default(True, "0.7", *MENDED),
}
# See docs/from_the_published_tool.md.
OTHERWISE = ("reward.quantile", "actors.envs_per_worker", "actors.warmup_seconds")
# What ONI's tool has besides Motif's, or with another default: the flags of its scripts/main.py.
ONI = {
    **{key: default for key, default in AGENT.items() if key not in OTHERWISE},
    "seed": Default(1, "oni --seed"),
    "train_for_env_steps": Default(10_000_000_000, "oni --train_for_env_steps"),
    "batch_size": Default(1024, "oni --batch_size"),
    "environment.name": Default("NetHackScoreExtendedActions-v1", "oni README: --root_env"),
    "network.obs_scale": Default(1.0, "oni --obs_scale", "255.0", "pixels between 0 and 1"),
    "reward.kind": Default("retrieval", "oni README: the kind with a published coefficient"),
    "reward.intrinsic_coefficient": Default(0.4, "oni README: --llm_reward_coeff"),
    "reward.extrinsic_scale": Default(1.0, "oni --reward_scale", "0.1", "as Motif has it"),
    "reward.encoder": Default("lt_cnn", "oni 1.3"),
    "reward.classifier.threshold": Default(0.5, "oni --classification_threshold"),
    "reward.classifier.dropout": Default(0.1, "oni 1.3"),
    "reward.threshold": Default(-0.5, "oni --eps_threshold_quantile, of ranking"),
    "reward.similarity": Default(-0.5, "oni --eps_threshold_quantile, of bag of words"),
    "reward.decay": Default(1.0, "oni 1.5"),
    "reward.value": Default("label", "oni 1.2"),
    "reward.pairs.every": Default(10, "oni --online_dataset_subsample"),
    "reward.pairs.distinct": Default(False, "oni --remove_duplicated_obs"),
    "reward.pairs.a_batch": Default(10, "oni 1.4"),
    "reward.pairs.waiting": Default(200, "oni 1.4"),
    "reward.training.batch_size": Default(256, "oni --reward_model_batch_size"),
    "reward.training.learning_rate": Default(1e-4, "oni --reward_model_lr"),
    "reward.training.steps_per_arrival": Default(32, "oni 1.3"),
    "reward.training.schedule": Default(
        "published", "oni 1.3", "'budget'", "a CPU has not the time"
    ),
    "reward.training.members": Default(1, "oni 1.3"),
    "reward.training.target": Default("label", "oni 1.3"),
    "annotator.kind": Default(
        "openai", "oni --llm_server_addr", "'lexicon'", "without a language model"
    ),
    "annotator.openai.model": Default(
        "Meta-Llama-3.1-8B-Instruct", "oni --llm_model", "''", "asked for"
    ),
    "annotator.openai.base_url": Default(
        "http://localhost:9001/v1",
        "oni --llm_server_addr",
        "'http://127.0.0.1:8000/v1'",
        "vLLM's own port",
    ),
    "annotator.goal": Default("defaultgoal", "oni --goal_key"),
    "annotator.prompt.version": Default(
        "default", "oni --prompt_version", "'auto'", "the annotator's own"
    ),
    "annotator.answer.mode": Default("analysis", "oni 1.6", "'auto'", "the annotator's own"),
    "annotator.sampling.temperature": Default(0.1, "oni 1.1"),
    "annotator.sampling.top_p": Default(1.0, "oni 1.1: none"),
    "annotator.sampling.top_k": Default(-1, "oni 1.1: none"),
    "annotator.sampling.max_tokens": Default(4096, "oni 1.1"),
    "queue.batch": Default(100, "oni --llm_batch_size"),
    "save_every_steps": Default(100_000_000, "oni --save_every_steps"),
    "keep_checkpoints": Default(3, "oni --keep_checkpoints"),
    "stats_episodes": Default(100, "oni --stats_avg"),
    "compat.oni_requeue": Default(True, "oni 1.1", *MENDED),
    "compat.oni_label_anywhere": Default(True, "oni 1.6", *MENDED),
    "compat.oni_extended_steps": Default(True, "oni 1.6b", *MENDED),
    "compat.oni_untrained_reward": Default(True, "oni 1.3", *MENDED),
    "compat.oni_ranking_raw_reward": Default(True, "oni 1.5", *MENDED),
}
TABLES = {"train_agent": AGENT, "train_reward": REWARD, "annotate": ANNOTATION, "oni": ONI}


def published(stage: str, variant: str) -> Any:
    config = load_config(stage, variant)
    if stage in ("train_agent", "oni"):
        config.reward.extrinsic_coefficient = settings.extrinsic_coefficient(agent_config(config))
    return config


@pytest.mark.parametrize("stage", TABLES)
def test_the_defaults_are_the_published_ones(stage: str) -> None:
    """The source of each stands in its row. A new switch or coefficient gets its row with its
    source.
    """
    faithful = published(stage, "faithful")
    plain = published(stage, "")
    table = TABLES[stage]
    assert {key: dotted(faithful, key) for key in table} == {
        key: row.value for key, row in table.items()
    }
    values = {key: repr(dotted(plain, key)) for key in table}
    assert values == {
        key: repr(row.value) if row.plain is None else row.plain for key, row in table.items()
    }
    assert [key for key, row in table.items() if row.plain is not None and not row.why] == []
    sections = {f"{part}.{key}" for part in ("algorithm", "compat") for key in plain.get(part, {})}
    # Of what the normalisation of values brings, which is not published.
    assert sections - set(table) <= {"algorithm.value_statistics_rate", "algorithm.advantage_scale"}


def test_workers_are_published_for_faithful_and_the_machines_without() -> None:
    assert published("train_agent", "faithful").actors.workers == 24
    assert published("train_agent", "").actors.workers == max(1, available_cores() - 1)


@pytest.mark.parametrize("method", ["psi", "bcq", "g", "ilql_utterance"])
def test_methods_that_take_a_policy_do_not_train_it(method: str) -> None:
    """As released: `detach_full_policy`, and for utterances a weight of 0."""
    assert published("train_text", f"visdial_{method}_faithful").loss.policy == 0.0


def test_cloning_learns_from_the_published_pairs() -> None:
    assert published("clone_behaviour", "faithful").train_pairs == 400_000
