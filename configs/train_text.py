"""Trains an agent that speaks from recorded dialogues (docs/ilql.md).

    python -m motif_jax.launch --config=configs/train_text.py:wordle_ilql --workdir=runs/ilql \\
        --config.data=runs/games

Out come tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and agent/, which
evaluate_text opens. Without --config.data dialogues are drawn from the task
while it trains. Stopped at any moment and started again with the same command it resumes, to the
same parameters. Of your own dialogues, with your own model (docs/tutorials/my_dialogues.md):

    python -m motif_jax.launch --config=configs/train_text.py:ilql --workdir=runs/ilql \\
        --config.task=dialogues --config.data=FILE.jsonl --config.network.checkpoint=GPT2_FOLDER

Variants: METHOD, TASK_METHOD, TASK_METHOD_faithful (the published numbers and quirks), smoke (a
minute).
  TASK    wordle, visdial, dialogues (of your own), or any of the package; one from outside the
          package: --config.task=module:Class
  METHOD  bc, bc_top, ilql, sarsa, awac, ilql_utterance, cql, psi, bcq, g, chai, dt; one of your
          own: --config.method.name=module:Class
"""

from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import compat
from motif_jax.ilql.config import IlqlCompat, TextConfig
from motif_jax.ilql.tasks import registry
from motif_jax.schema import configs, section_keys, update

TASKS = registry.names()
METHODS = "bc bc_top ilql sarsa awac ilql_utterance cql psi bcq g chai dt".split()
_NAMES = {f"{task}_{method}": (task, method) for task in TASKS for method in METHODS}
KEYS = {
    "stage": "train_text",
    **section_keys(TextConfig),
    "compat": compat.switches(
        "ilql_policy_loss_norm ilql_utterance_int_reward ilql_padded_positions ilql_utterance_truncation ilql_next_q_zero "
        "ilql_target_dropout chai_scores",
        IlqlCompat,
    ),
}
# What a method is, wherever it is trained.
OF_METHOD: dict[str, dict[str, Any]] = {
    "bc": {"optimizer.weight_decay": 0.01},
    "bc_top": {"optimizer.weight_decay": 0.01, "filter.top": 0.2},
    "ilql": {},
    "sarsa": {"method.expectile": 0.5},
    "awac": {"method.policy.beta": 4.0},
    "ilql_utterance": {"method.expectile": 0.9},
    "cql": {"method.expectile": 0.5, "loss.cql": 0.1},
    "psi": {"method.expectile": 0.5, "method.reward_scale": 0.1, "loss.policy": 0.0},
    "bcq": {"method.expectile": 0.5, "method.reward_scale": 0.1, "loss.policy": 0.0},
    "g": {"method.expectile": 0.5, "method.reward_scale": 0.1, "loss.policy": 0.0},
    "chai": {"loss": {"cql": 0.1, "v": 0.0, "policy": 0.0}, "chunk_steps": 1},
    "dt": {},
}
# Dialogues of each task where no data are given, as collect_text draws them.
OF_TASK: dict[str, dict[str, Any]] = {
    "wordle": {},
    "visdial": {
        "kind": "recorded",
        "policy": "remote",
        "method.expectile": 0.8,
        "candidates.max_tokens": 40,
    },
    "reddit": {
        "kind": "recorded",
        "policy": "recorded",
        "method.expectile": 0.6,
        "candidates.max_tokens": 256,
    },
    "babyai_text": {"policy": "random"},
    "dialogues": {"kind": "recorded"},
}
# Of methods whose weight of the conservative term is the task's.
_TASK_CQL = ("ilql", "sarsa", "awac")
_CQL = {"visdial": 1.0, "reddit": 0.25}
# Methods that the published configs train at this rate instead of 1e-5.
_FAST = ("bc", "bc_top", "cql", "dt", "ilql_utterance")
VARIANTS = {
    "smoke": {
        "network": {"width": 32, "layers": 2, "heads": 2, "max_length": 96},
        "batch_size": 8,
        "max_steps": 8,
        "evaluate_every": 4,
        "chunk_steps": 2,
        "evaluation_batches": 2,
        "loss.cql": 0.01,
        "games.episodes": 0,
    },
    # Of a method alone: for dialogues of one's own, and tasks from outside the package.
    **{name: {} for name in (*METHODS, *_NAMES, *(f"{name}_faithful" for name in _NAMES))},
}
_get_config = configs(KEYS, VARIANTS)


def _faithful(config: ConfigDict) -> None:
    """The published numbers and quirks, see docs/reproduce_ilql.md."""
    update(config, compat.switched_on(*KEYS["compat"]))
    wordle = config.task == "wordle"
    config.batch_size, config.accumulate = (64 * 16, 16) if wordle else (64, 64)
    if wordle and config.method.name in ("bc", "bc_top"):
        config.batch_size, config.accumulate = 64, 1
    if config.task == "visdial" and config.method.name in ("bc", "bc_top"):
        config.batch_size, config.accumulate = 256, 128
    if config.method.name == "chai":
        config.batch_size, config.accumulate = 16, 4
    config.average, config.length_buckets = "micro_batch", False
    config.optimizer.learning_rate = (
        1e-4 if config.task == "reddit" or config.method.name in _FAST else 1e-5
    )
    if config.method.name == "ilql_utterance":
        config.loss.policy = 0.0  # the policy is that of a run of bc, --config.initial.policy=RUN
    if config.task == "reddit":
        config.max_len = 512
    if not wordle:
        config.optimizer.weight_decay = 0.0
        # The trunk of chai is its policy's.
        config.network.checkpoint = None if config.method.name == "chai" else "gpt2"


def get_config(variant: str | None = None) -> ConfigDict:
    config = _get_config(variant)
    if not variant or variant == "smoke":
        return config
    task, name = (
        (config.task, variant) if variant in METHODS else _NAMES[variant.removesuffix("_faithful")]
    )
    config.task, config.method.name = task, name
    update(config, OF_TASK.get(task, {}))
    update(config, OF_METHOD[name])
    if name in _TASK_CQL:
        config.loss.cql = _CQL.get(task, 1e-4)
    if variant.endswith("_faithful"):
        _faithful(config)
    return config
