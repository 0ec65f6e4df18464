"""Trains an agent that speaks from recorded dialogues (docs/ilql.md).

    python -m motif_jax.launch --config=configs/train_text.py:wordle_ilql --workdir=runs/ilql --config.data=runs/games

Out come tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and agent/, which evaluate_text, rank_text and play_text open.
Without --config.data dialogues are drawn from the task while it trains. Stopped at any moment and started again with the same command
it resumes, to the same parameters. Of your own dialogues, with your own model (docs/tutorials/my_dialogues.md):

    python -m motif_jax.launch --config=configs/train_text.py:ilql --workdir=runs/ilql --config.task=dialogues \\
        --config.data=FILE.jsonl --config.network.checkpoint=GPT2_FOLDER

Variants: METHOD, TASK_METHOD, TASK_METHOD_faithful (the published numbers and quirks), smoke (a minute).
  TASK    wordle, visdial, dialogues (of your own), or any of the package; one from outside the package: --config.task=module:Class
  METHOD  bc, bc_top, ilql, sarsa, awac, ilql_utterance, cql, psi, bcq, g, chai, dt; ppo, which learns from episodes that the agent
          plays and takes no data; one of your own: --config.method.name=module:Class
"""

from typing import Any

from ml_collections import ConfigDict

from motif_jax import sections
from motif_jax.envs.text import registry
from motif_jax.schema import Key, configs, count, fraction, natural, one_of, positive, update, with_defaults

TASKS = registry.names()
METHODS = "bc bc_top ilql sarsa awac ilql_utterance cql psi bcq g chai dt ppo".split()
_NAMES = {f"{task}_{method}": (task, method) for task in TASKS for method in METHODS}
_PUBLISHED = [name for name, (_, method) in _NAMES.items() if method != "ppo"]
METHOD = {
    "name": Key("ilql", "of METHOD above, or module:Class (docs/ilql.md)"),
    "discount": fraction(0.99, "from one action (a token; of ilql_utterance an utterance) to the next"),
    "expectile": Key(0.7, "expectile of the target Q that V estimates; 0.5: the mean", above=0, below=1),
    "polyak": fraction(0.005, "share by which targets move to the Qs after every step"),
    "copy_every": positive(None, "steps between whole copies to the targets; None: no copies", int),
    "double_q": Key(True, "two Qs, of which targets take the smaller one"),
    "separate_policy": Key(True, "the policy has a trunk of its own; else that of the values"),
    "separate_target": Key(True, "the target Qs have a trunk of their own"),
    "advanced_mlp": Key(False, "the other form of heads: a residual layer with dropout"),
    "detach_v": Key(False, "no gradient of V reaches the trunk"),
    "detach_q": Key(False, "no gradient of Q reaches the trunk"),
    "detach_policy": Key(False, "no gradient of the policy reaches the trunk"),
    "q_min": Key(None, "target Qs are at least this", float),
    "q_max": Key(None, "target Qs are at most this", float),
    "monte_carlo": Key(False, "V estimates the return that followed instead of the target Q"),
    "cql_temperature": positive(1.0, "of the conservative term's softmax"),
    "margin": natural(0.0, "of the margin term"),
    "reward_scale": positive(1.0, "rewards are divided by it"),
    "policy": {
        "beta": natural(0.0, "an action has weight exp(beta A); see exponential"),
        "exponential": Key(True, "False: an action has weight beta where A > 0, else 1 - beta"),
        "most_weight": positive(None, "weights are clipped to it", float),
        "context_weight": natural(0.0, "weight of tokens that the agent did not say"),
    },
}
CANDIDATES = {
    "count": positive(5, "of method chai: texts of the policy in each state of the data"),
    "max_tokens": count(6, "of each"),
    "together": positive(4, "states whose candidates are written in one program"),
    "temperature": Key(1.0, "of their draws"),
    "top_k": Key(0, "tokens that may be drawn; 0: all"),
    "top_p": Key(1.0, "probability of the tokens that may be drawn"),
    "cache_mebibytes": positive(1024, "kept in candidates/ of the run; the oldest are dropped"),
    "folder": Key(None, "keeps candidates here, for several runs of one policy", str),
}
PPO = {
    "epochs": positive(4, "of method ppo: passes over the episodes of a step, batch_size of them"),
    "minibatches": positive(4, "of a pass, each one optimiser step in `accumulate` parts"),
    "clip_ratio": positive(0.2, "of the surrogate: [0.8, 1.2]"),
    "clip_value": positive(0.2, "of the value's change, in units of the reward"),
    "value_coefficient": natural(0.1, "of the value's loss"),
    "entropy_coefficient": natural(0.0, "of the entropy"),
    "gae_lambda": fraction(0.95, "of generalised advantage estimation"),
    "normalise_advantage": Key(True, "subtracts the mean of a step's tokens, divides by their deviation"),
    "kl": sections.KL,
}
KEYS = {
    "stage": "train_text",
    "seed": sections.SEED_32,
    "task": Key("wordle", "a text task, or module:Class (docs/ilql.md)"),
    "options": Key("", 'of the task, as JSON: {"num_words": 100}; data of collect_text bring theirs'),
    "data": Key(None, "dialogues (.jsonl, .parquet) or their folder; None: drawn as by collect_text", str),
    "kind": Key("games", "of dialogues that are drawn"),
    "policy": Key("mixture(0.5, optimal, repeat(optimal))", "of dialogues that are drawn"),
    "held_out": {
        "share": Key(
            0.02,
            "of the data (of groups) on which losses are measured: 1 of n where it is 1 / n",
            above=0,
            most=0.5,
        ),
        "data": Key(None, "other data in place of a share; of a stream they are drawn beforehand", str),
    },
    "filter": {
        "top": Key(1.0, "%BC: only this best part of the data, by return, is learned from", above=0, most=1),
        "bottom": Key(1.0, "or the worst part", above=0, most=1),
        "cutoff": Key(None, "or those with a return of at least this, without token_reward", float),
    },
    "token_reward": sections.TOKEN_REWARD,
    "method": METHOD,
    "loss": {
        "q": natural(1.0, "weight of Q's term"),
        "v": natural(1.0, "weight of V's term"),
        "policy": natural(1.0, "weight of the policy's cross-entropy"),
        "cql": natural(0.0, "weight of the conservative term"),
        "margin": natural(0.0, "weight of the margin term"),
    },
    "candidates": CANDIDATES,
    "ppo": PPO,
    "network": {
        "checkpoint": Key(None, "trunks begin as this folder or hub model; None: fresh, of these sizes", str),
        **sections.MODEL_SIZES,
    },
    "initial": {
        "policy": Key(None, "a run that the policy's parameters are taken from", str),
        "value": Key(None, "a run that the values' parameters are taken from", str),
    },
    "max_len": count(None, "tokens of a dialogue that are kept; None: what the model has room for", int),
    "length_buckets": Key(True, "batches dialogues of similar length; False: pads to the longest"),
    "batch_size": sections.batch(64, "dialogues of a step"),
    "accumulate": sections.ACCUMULATE,
    "average": one_of(("batch", "micro_batch"), "over a step's actions, or over micro-batches (published)"),
    "max_steps": positive(10_000, "of the training"),
    "evaluate_every": sections.EVALUATE_EVERY,
    "evaluation_batches": positive(16, "of held-out dialogues, at most"),
    "games": {
        "episodes": natural(16, "played at every evaluation, the same each time; 0: none"),
        "decode": sections.DECODE,
    },
    "optimizer": with_defaults(sections.OPTIMIZER, final_fraction=0.1)
    | {"weight_decay": sections.WEIGHT_DECAY},
    "dropout": sections.DROPOUT,
    "dtype": sections.DTYPE,
    "remat": sections.REMAT,
    "logits_chunk": sections.LOGITS_CHUNK,
    "lora": sections.LORA,
    **sections.TRAINING_FROM_TEXT,
    "log_every_seconds": positive(20.0, "between rows of Q, V and advantages (docs/metrics.md)"),
    "compat": sections.compat(
        "ilql_policy_loss_norm ilql_utterance_int_reward ilql_padded_positions ilql_utterance_truncation ilql_next_q_zero "
        "ilql_target_dropout chai_scores"
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
    # As TRL, whose values are clipped at 0.2, of returns about 1.
    "ppo": {
        "batch_size": 128,
        "chunk_steps": 1,
        "dropout": 0.0,
        "evaluate_every": 10,
        "games.episodes": 128,
        "max_steps": 200,
        "method.discount": 1.0,
        "optimizer.max_gradient_norm": 1.0,
        "ppo": {"clip_value": 1.0, "kl": {"coefficient": 0.05}},
    },
}
# Dialogues of each task where no data are given, as collect_text draws them.
OF_TASK: dict[str, dict[str, Any]] = {
    "wordle": {},
    "visdial": {"kind": "recorded", "policy": "remote", "method.expectile": 0.8, "candidates.max_tokens": 40},
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
    **{name: {} for name in (*METHODS, *_NAMES, *(f"{name}_faithful" for name in _PUBLISHED))},
}
_get_config = configs(KEYS, VARIANTS)


def _faithful(config: ConfigDict) -> None:
    """The published numbers and quirks, see docs/reproduce_ilql.md."""
    update(config, sections.on(*KEYS["compat"]))
    wordle = config.task == "wordle"
    config.batch_size, config.accumulate = (64 * 16, 16) if wordle else (64, 64)
    if wordle and config.method.name in ("bc", "bc_top"):
        config.batch_size, config.accumulate = 64, 1
    if config.task == "visdial" and config.method.name in ("bc", "bc_top"):
        config.batch_size, config.accumulate = 256, 128
    if config.method.name == "chai":
        config.batch_size, config.accumulate = 16, 4
    config.average, config.length_buckets = "micro_batch", False
    config.optimizer.learning_rate = 1e-4 if config.task == "reddit" or config.method.name in _FAST else 1e-5
    if config.method.name == "ilql_utterance":
        config.loss.policy = 0.0  # the policy is that of a run of bc, --config.initial.policy=RUN
    if config.method.name in ("psi", "bcq", "g"):
        config.loss.policy = 1.0  # it is learned beside Q, from GPT-2 on
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
    task, name = (config.task, variant) if variant in METHODS else _NAMES[variant.removesuffix("_faithful")]
    config.task, config.method.name = task, name
    update(config, OF_TASK.get(task, {}))
    update(config, OF_METHOD[name])
    if name in _TASK_CQL:
        config.loss.cql = _CQL.get(task, 1e-4)
    if variant.endswith("_faithful"):
        _faithful(config)
    return config
