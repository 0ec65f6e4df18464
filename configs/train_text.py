"""Trains an agent that speaks from recorded dialogues (docs/ilql.md).

    python -m motif_jax.launch --config=configs/train_text.py:wordle_ilql --workdir=runs/ilql --config.data=runs/games

Out come tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and agent/, which evaluate_text, rank_text and play_text open.
Without --config.data dialogues are drawn from the task while it trains. Stopped at any moment and started again with the same command
it goes on, to the same parameters. Of your own dialogues, with your own model (docs/tutorials/my_dialogues.md):

    python -m motif_jax.launch --config=configs/train_text.py:ilql --workdir=runs/ilql --config.task=dialogues \\
        --config.data=FILE.jsonl --config.network.checkpoint=GPT2_FOLDER

Variants: METHOD, TASK_METHOD, TASK_METHOD_faithful (the published numbers and quirks), smoke (a minute).
  TASK    wordle, visdial, dialogues (of your own), or any of the package; one from outside the package: --config.task=module:Class
  METHOD  bc, bc_top, ilql, sarsa, awac, ilql_utterance, cql, psi, bcq, g, chai, dt
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.envs.text import registry
from motif_jax.support import decode_config, nonfinite
from motif_jax.support.config import all_compat_on, compat, unknown_variant

TASKS = registry.names()
METHODS = "bc bc_top ilql sarsa awac ilql_utterance cql psi bcq g chai dt".split()
_NAMES = {f"{task}_{method}": (task, method) for task in TASKS for method in METHODS}
# Of a method alone: for dialogues of one's own, and tasks from outside the package.
VARIANTS = ("", "smoke", *METHODS, *_NAMES, *(f"{name}_faithful" for name in _NAMES))
SWITCHES = (
    "ilql_policy_loss_norm ilql_utterance_int_reward ilql_padded_positions ilql_utterance_truncation ilql_next_q_zero "
    "ilql_target_dropout chai_scores"
).split()


def _method() -> ConfigDict:
    method = ConfigDict()
    method.name = "ilql"
    method.discount = 0.99  # of a step from one action (a token; of ilql_utterance an utterance) to the next
    method.expectile = 0.7  # of the target Q that V estimates; 0.5: the mean
    method.polyak = 0.005  # share of the way that targets go after every step
    method.copy_every = placeholder(int)  # whole copies to the targets every so many steps besides
    method.double_q = True  # two Qs, of which targets take the smaller one
    method.separate_policy = True  # the policy has a trunk of its own; else that of the values
    method.separate_target = True  # the target Qs have a trunk of their own
    method.advanced_mlp = False  # the other form of heads: a residual layer with dropout
    # Whose gradient does not reach the trunk.
    method.detach_v = False
    method.detach_q = False
    method.detach_policy = False
    method.q_min = placeholder(float)  # target Qs are clipped to these
    method.q_max = placeholder(float)
    method.monte_carlo = False  # V estimates the return that followed in the place of the target Q
    method.cql_temperature = 1.0  # of the conservative term's softmax
    method.margin = 0.0  # of the margin term
    method.reward_scale = 1.0  # rewards are divided by it
    # How much an action counts for the policy: exp(beta A); without `exponential` beta where A > 0, else 1 - beta.
    method.policy = ConfigDict(
        {
            "beta": 0.0,
            "exponential": True,
            "most_weight": placeholder(float),  # weights are clipped to it
            "context_weight": 0.0,  # of tokens that the agent did not say
        }
    )
    return method


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    optimizer.learning_rate = 1e-4
    optimizer.schedule = "constant"  # 'linear', 'cosine'
    optimizer.warmup_steps = 0  # over so many the rate rises; then it falls until the last step
    optimizer.final_fraction = 0.1
    optimizer.b1 = 0.9
    optimizer.b2 = 0.999
    optimizer.eps = 1e-8
    optimizer.weight_decay = 0.0  # of matrices, times the learning rate
    optimizer.max_gradient_norm = 0.0  # 0: no clip
    return optimizer


def _candidates() -> ConfigDict:
    candidates = ConfigDict()
    # Of method chai: what the policy would say in each state of the data; a function of the state, the policy and the seed.
    candidates.count = 5  # of a state
    candidates.max_tokens = 6  # of each
    candidates.together = 4  # states whose candidates are written in one program
    candidates.temperature = 1.0  # of their draws
    candidates.top_k = 0  # 0: all tokens
    candidates.top_p = 1.0
    # Those that were written are kept in candidates/ of the run, the oldest making room; or in `folder`, for several runs of one policy.
    candidates.cache_mebibytes = 1024
    candidates.folder = placeholder(str)
    return candidates


def _network() -> ConfigDict:
    network = ConfigDict()
    # A folder or hub model that all trunks begin as, its vocabulary extended by the delimiters; None: fresh ones of these sizes.
    network.checkpoint = placeholder(str)
    network.width = 768
    network.layers = 12
    network.heads = 12
    network.max_length = 1024  # positions of the table
    return network


def _base() -> ConfigDict:
    config = ConfigDict()
    config.stage = "train_text"
    config.seed = 0
    config.task = "wordle"  # a text task, or module:Class (docs/ilql.md)
    config.options = (
        ""  # of the task, as JSON: {"num_words": 100}; those of data that collect_text drew are known
    )
    # A file of dialogues (.jsonl, .parquet) or a folder with one, such as collect_text makes; None: drawn from the task, `kind` by `policy` as collect_text does.
    config.data = placeholder(str)
    config.kind = "games"
    config.policy = "mixture(0.5, optimal, repeat(optimal))"
    # What losses are measured on: a share of the data (1 of n where it is 1 / n; of groups, where dialogues belong to one), or other data; of a stream always dialogues that are drawn beforehand.
    config.held_out = ConfigDict({"share": 0.02, "data": placeholder(str)})
    # Which dialogues are learned from (%BC): the best or the worst part by return, those with a return of at least `cutoff`; what tokens
    # are paid below is no part of it.
    config.filter = ConfigDict({"top": 1.0, "bottom": 1.0, "cutoff": placeholder(float)})
    # What every token of an action is paid: a constant; or by a JSON file {token: value}, times scale plus shift.
    config.token_reward = ConfigDict({"constant": 0.0, "file": placeholder(str), "scale": 1.0, "shift": 0.0})
    config.method = _method()
    # Weights of the terms. Q, V, the policy's cross-entropy, the conservative term, the margin term.
    config.loss = ConfigDict({"q": 1.0, "v": 1.0, "policy": 1.0, "cql": 0.0, "margin": 0.0})
    config.candidates = _candidates()
    config.network = _network()
    # Run folders that parameters are taken from: the policy's, and those of all that has to do with values.
    config.initial = ConfigDict({"policy": placeholder(str), "value": placeholder(str)})
    config.max_len = placeholder(int)  # tokens of a dialogue that are kept; None: what the model has room for
    config.length_buckets = True  # dialogues of about one length together; False: all padded to the longest
    config.batch_size = 64  # dialogues of a step
    config.accumulate = 1  # micro-batches of a step: less memory
    # 'batch': the loss is the mean over all actions of a step; 'micro_batch': the mean of its micro-batches' means, as published.
    config.average = "batch"
    config.max_steps = 10_000
    config.evaluate_every = 500  # steps
    config.evaluation_batches = 16  # of held-out dialogues, at most
    # Episodes that are played at every evaluation, the same ones each time, where the task's environment needs no server; 0: none.
    config.games = ConfigDict({"episodes": 16, "decode": decode_config.defaults()})
    config.optimizer = _optimizer()
    config.dropout = 0.1  # share left out while training
    config.dtype = "float32"  # of the computation: 'bfloat16'; parameters, optimiser and losses are float32
    config.remat = False  # compute activations again in the backward pass instead of keeping them
    # Positions whose numbers of all tokens (logits, Qs) are there at once; None: all of a micro-batch. Heads draw
    # dropout by it, so a run keeps it.
    config.logits_chunk = placeholder(int)
    config.lora = ConfigDict()
    # Of layers with low-rank additions, '*/attention/query,*/attention/value': trunks stay, these and the heads are learned; empty: all is.
    config.lora.patterns = ""
    config.lora.rank = 8
    config.lora.alpha = 16.0  # additions are multiplied by alpha / rank
    # End when the loss on held-out dialogues was no better for so many evaluations, and use the best; 0: never.
    config.early_stopping = ConfigDict({"patience": 0})
    config.keep_checkpoints = 2  # the newest, besides the best
    # Of this machine; None: all. With dropout a run goes on with as many alone.
    config.num_devices = placeholder(int)
    # For what does not fit one device: parameters and optimiser are split over fsdp x tensor of the devices, and batches over
    # the others and fsdp (docs/language.md). 1 and 1: every device holds all.
    config.sharding = ConfigDict({"fsdp": 1, "tensor": 1})
    config.chunk_steps = 8  # optimiser steps of one program
    # Of float32 matrix products: 'highest', or 'default', which on recent GPUs rounds their factors to TF32 (10 bits).
    config.matmul_precision = "default"
    config.save_every_seconds = 300.0  # besides every evaluation
    config.log_every_seconds = (
        20.0  # between rows of what is learned: Q, V, advantages, entropy (docs/metrics.md)
    )
    # Where a loss, a gradient or a parameter is not finite the step is not taken, and its batch is written to
    # nonfinite/step-N.npz: 'stop' ends the training there, 'skip' goes on, most_skips times at most.
    config.nonfinite = nonfinite.defaults()
    config.profile = ConfigDict({"start": placeholder(int), "steps": 2, "server_port": placeholder(int)})
    config.wandb = ConfigDict({"enabled": False, "project": "motif_jax", "name": placeholder(str)})
    # Quirks of the published code, see docs/ilql.md.
    config.compat = compat(*SWITCHES)
    return config


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
    "chai": {"loss.cql": 0.1, "loss.v": 0.0, "loss.policy": 0.0, "chunk_steps": 1},
    "dt": {},
}


# Dialogues of each task where no data are given, as collect_text draws them.
OF_TASK: dict[str, dict[str, Any]] = {
    "wordle": {},
    "visdial": {
        "kind": "recorded",
        "policy": "remote",
        "method.expectile": 0.8,
        "loss.cql": 1.0,
        "candidates.max_tokens": 40,
    },
    "reddit": {
        "kind": "recorded",
        "policy": "recorded",
        "method.expectile": 0.6,
        "loss.cql": 0.25,
        "candidates.max_tokens": 256,
    },
    "babyai_text": {"policy": "random"},
    "dialogues": {"kind": "recorded"},
}
# Of methods whose weight of the conservative term is the task's.
_TASK_CQL = ("ilql", "sarsa", "awac")
# Methods that the published configs train at this rate instead of 1e-5.
_FAST = ("bc", "bc_top", "cql", "dt", "ilql_utterance")


def _faithful(config: ConfigDict) -> None:
    """The published numbers and quirks, see docs/reproduce_ilql.md."""
    all_compat_on(config)
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
    config = _base()
    if variant == "smoke":
        config.network.update({"width": 32, "layers": 2, "heads": 2, "max_length": 96})
        config.update({"batch_size": 8, "max_steps": 8, "evaluate_every": 4, "chunk_steps": 2})
        config.evaluation_batches, config.loss.cql, config.games.episodes = 2, 0.01, 0
        return config
    if not variant:
        return config
    if variant not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    task, name = (config.task, variant) if variant in METHODS else _NAMES[variant.removesuffix("_faithful")]
    config.task, config.method.name = task, name
    of_task = dict(OF_TASK.get(task, {}))
    cql = of_task.pop("loss.cql", 1e-4)
    config.update_from_flattened_dict({**of_task, **OF_METHOD[name]})
    if name in _TASK_CQL:
        config.loss.cql = cql
    if variant.endswith("_faithful"):
        _faithful(config)
    return config
