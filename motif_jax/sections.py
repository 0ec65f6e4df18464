"""Sections and keys that several configs have, each with its defaults, ranges and meanings (`schema.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.schema import (
    BATCH,
    DTYPES,
    Key,
    count,
    fraction,
    natural,
    one_of,
    positive,
    section,
    size,
    update,
)
from motif_jax.support.config import default_workers, unknown_variant


def seed(default: int, most: int | None = None) -> Key:
    """The seed of a stage."""
    return Key(default, "of all that is drawn at random", least=None if most is None else 0, most=most)


def batch(default: int, help: str) -> Key:
    """The size of a batch."""
    return positive(default, help, most=BATCH)


SEED = seed(0)
SEED_32 = seed(0, most=2**32 - 1)
DTYPE = one_of(DTYPES, "of the computation; parameters, optimiser and losses are float32")
MATMUL_PRECISION = one_of(
    ("default", "highest"),
    "of float32 matrix products; 'default' rounds their factors to TF32 (10 bits) on recent GPUs",
)
SAVE_EVERY_SECONDS = positive(300.0, "between checkpoints, besides those of evaluations")
HOSTS = {
    "coordinator": Key(None, "'HOST:PORT' of the first of several hosts, or 'slurm' under srun", str),
    "count": positive(None, "of hosts, one process each", int),
    "index": natural(None, "of this host", int),
    "heartbeat_timeout_seconds": Key(100.0, "the other hosts end when one is silent for this long", least=1),
    "connect_timeout_seconds": positive(300.0, "how long the hosts wait for each other at the start"),
}
NUM_DEVICES = positive(None, "of each host; None: all. With dropout a run resumes only with as many", int)
NONFINITE = {
    "policy": one_of(
        ("stop", "skip"),
        "if a loss, a gradient or a parameter is not finite, the step is not taken and its batch is written to nonfinite/step-N.npz: "
        "'stop' ends the training there, 'skip' continues",
    ),
    "most_skips": positive(10, "'skip' ends a run after this many"),
}
EARLY_STOPPING = {
    "patience": natural(0, "evaluations without a better held-out loss until the run ends; 0: never")
}
WANDB = {
    "enabled": Key(False, "logs to Weights & Biases, too"),
    "project": Key("motif_jax", "in W&B"),
    "name": Key(None, "of the run in W&B; None: W&B's own", str),
}
SHARDING = {
    "fsdp": positive(
        1,
        "for models that do not fit one device: splits parameters and optimiser over fsdp x tensor devices of a host, batches over the "
        "other devices and fsdp (docs/language.md); 1 and 1: every device holds all",
    ),
    "tensor": positive(1, "see fsdp; devices along tensor work on the same rows"),
}
LORA = {
    "patterns": Key(
        "",
        "layers that get low-rank additions, such as '*/attention/query,*/attention/value' (docs/language.md); only they and the heads "
        "are learned; empty: all is learned",
    ),
    "rank": size(8, "of the additions"),
    "alpha": positive(16.0, "additions are multiplied by alpha / rank"),
}
LORA_BASE = one_of(("float32", "bfloat16", "int8", "nf4"), "what the frozen weights are kept in")


def profile(steps: int = 2) -> dict[str, Key]:
    """A trace of XLA."""
    return {
        "start": natural(None, "update after which a trace starts; None: no trace", int),
        "steps": positive(steps, "updates in the trace"),
        "server_port": positive(
            None, "where TensorBoard can ask for a trace; None: none", int, below=1 << 16
        ),
    }


OPTIMIZER = {
    "learning_rate": positive(1e-4, "of Adam", most=100.0),
    "schedule": one_of(
        ("constant", "linear", "cosine"),
        "'linear' and 'cosine' fall until the last step, down to final_fraction of the rate",
    ),
    "warmup_steps": natural(0, "optimiser steps over which a factor of the rate rises to 1"),
    "final_fraction": fraction(0.0, "of the rate, at the end of its schedule"),
    "b1": Key(0.9, "of Adam's mean", least=0, below=1),
    "b2": Key(0.999, "of Adam's second moment", least=0, below=1),
    "eps": positive(1e-8, "of Adam"),
    "max_gradient_norm": natural(0.0, "gradients of a greater norm are clipped to it; 0: no clip"),
}
WEIGHT_DECAY = natural(0.0, "of matrices, times the learning rate")
DROPOUT = Key(0.1, "share left out while training", least=0, below=1)
# Keys of trainings in steps.
ACCUMULATE = positive(1, "micro-batches of a step, one after the other: changes only memory", most=BATCH)
CHUNK_STEPS = positive(8, "optimiser steps of one program", most=BATCH)
EVALUATE_EVERY = positive(500, "steps")
KEEP_CHECKPOINTS = positive(2, "the newest, besides the best")
REMAT = Key(False, "computes activations again in the backward pass instead of keeping them")
LOGITS_CHUNK = positive(
    None,
    "positions whose logits and Qs of all tokens are in memory at once; None: all of a micro-batch. Dropout of heads depends on it",
    int,
)
# The penalty on the divergence from the first policy (algorithms/kl_penalty.py).
KL = {
    "coefficient": natural(0.0, "of log pi - log pi_ref in the reward, pi_ref at the start; 0: none"),
    "target": positive(
        None,
        "nats an action (free text: an utterance) to which the coefficient adapts; None: it is fixed",
        float,
    ),
    "horizon": positive(10_000, "actions over which the coefficient changes by the relative error"),
}
MODEL_SIZES = {
    "width": size(768, "of the residual stream"),
    "layers": size(12, "of a T5 on both sides"),
    "heads": size(12, "of attention"),
    "max_length": count(1024, "positions of the table"),
}

# Keys of stages that play episodes.
WORKERS = positive(default_workers(), "processes that play")
LANES = count(32, "episodes of an agent at a time; the network sees lanes / 2 at once", multiple=2)
GREEDY = Key(False, "takes the most likely action instead of drawing one (networks only)")
RESAMPLES = positive(2000, "of the bootstrap")
CONFIDENCE = Key(0.95, "of the intervals", above=0, below=1)
POLICY = Key(
    "random",
    "'random'; 'fixed': actions drawn at every step by the same shares, fitted first to earn most; 'bot', where the environment has a "
    "scripted player (BabyAI-Text); 'agent' (that of agent.dir); the folder of an agent run; or module:Class of your own "
    "(rollouts/policies.py)",
)
CHECKPOINT = Key("latest", "'latest', 'best' (by mean return in training), or a step; 0: before it")
AGENT_DIR = Key(None, "run folder of train_agent; the random policy plays in its environment", str)
# An agent keeps the options of its training; on another level without kind and distractors.
PLAYED_LEVEL = Key(None, "None: the agent's, or BabyAI-MixedTrainLocal-v0", str)
THREADS = size(1, "environments that answer at a time; take more where they wait for a server")
MAX_EPISODE_STEPS = positive(None, "None: the agent's, or the environment's own", int)
PLAYED_ENVIRONMENT = {
    "name": Key(None, "None: the agent's, or NetHackScore-v1; else as in train_agent", str),
    "text": Key(None, "of gym:ID, as in train_agent; None: the agent's, or the default", str),
    "text_bytes": positive(None, "of gym:ID, as in train_agent; None: the agent's, or the default", int),
    "modules": Key(None, "of gym:ID, as in train_agent; None: the agent's, or the default", str),
    "change": Key(None, "of BabyAI-Text's prompts ('other_episode'; docs/glam.md); None: the agent's", str),
    "max_episode_steps": MAX_EPISODE_STEPS,
}
GYM = {
    "text": Key("", "of gym:ID: a step's text: 'module:function', 'info:KEY', 'obs:KEY'; empty: none"),
    "text_bytes": positive(256, "of gym:ID: bytes of a text at most"),
    "modules": Key("", "of gym:ID: modules that register environments, with commas between"),
}
REWARD_STEP = natural(None, "checkpoint of the reward, with its quantiles; None: the newest", int)
QUANTILE = fraction(0.5, "values at or below this quantile become 0; None: no threshold", none=True)
THRESHOLD = one_of(
    ("quantile", "auto"),
    "'quantile', or 'auto': above the texts that the judge called ties and above the empty text (docs/rewards.md)",
)
NORMALISE = Key(True, "subtracts the rewards' mean and divides by their standard deviation")
COUNT_EXPONENT = natural(3.0, "a message's reward is divided by its count in the episode to this power")
SCORING = {
    "dir": Key(
        None,
        "a reward run, or its .safetensors file; None: the agent's (or evaluation's) own, if there is one, with its settings; empty: none",
        str,
    ),
    "step": REWARD_STEP,
    "normalise": NORMALISE,
    "quantile": QUANTILE,
    "threshold": THRESHOLD,
    "count_exponent": COUNT_EXPONENT,
}
FORMS = {
    "html": Key(True, "a player for a browser"),
    "ttyrec": Key(True, "a file for nle-ttyplay2"),
    "gif": Key(False, "a movie"),
    "mp4": Key(False, "a movie; needs ffmpeg"),
    "frames_per_second": positive(10.0, "of movies"),
    "start": natural(0, "movies show steps [start, stop), every `every`-th and the rewarded ones"),
    "stop": positive(None, "see start; None: the end", int),
    "every": positive(1, "see start"),
}
TOKEN_REWARD = {
    "constant": Key(0.0, "reward of every token of an action"),
    "file": Key(None, "a JSON file {token: value} in place of the constant", str),
    "scale": Key(1.0, "the file's values are multiplied by it"),
    "shift": Key(0.0, "is added to the scaled values"),
}
DECODE = {
    "kind": Key(
        None,
        "'sample', 'greedy', 'beam' (of `width`), or 'rerank': the best of `batches` x `width` samples (utterance ILQL and CHAI: by the value "
        "of the whole action; others: by sums over its tokens). None: as published, 'rerank' for these two methods, else 'sample'",
        str,
        choices=("sample", "greedy", "beam", "rerank"),
    ),
    "max_tokens": count(None, "of an action; None: the longest of the agent's data", int),
    "width": size(None, "None: 4 for utterance ILQL, 5 for CHAI, else 1", int),
    "batches": positive(1, "of samples, for 'rerank'"),
    "temperature": Key(1.0, "of the policy's logits, before they are steered"),
    "top_k": Key(0, "tokens that may be drawn; 0: all"),
    "top_p": Key(1.0, "probability of the tokens that may be drawn"),
    "advantage_weight": Key(16.0, "weight x (Q - V) is added to the logits"),
    "advantage_clip": Key(None, "at most this is added; 0: tokens can only become less likely", float),
    "advantage_form": one_of(("exp", "sign"), "'sign' adds log(weight) where Q > V, else log(1 - weight)"),
    "logits": Key(True, "False: values alone decide"),
    "advantages": Key(True, "False: the policy alone decides"),
    "rerank_advantage_weight": Key(1.0, "of 'rerank': weight of the sum over an action's tokens"),
    "rerank_log_prob_weight": Key(0.0, "of 'rerank': weight of the sum over an action's tokens"),
    "log_prob_weight": Key(0.0, "utterance ILQL: weight of log pi beside the action's value"),
    "target_return": Key(-5.7, "what a decision transformer is conditioned on"),
}

_COMMAND = "a config file and flags; {workdir} is the folder of the study, {run} that of a run"
# Keys that the three configs of studies share: first steps, methods, tables and curves.
STUDY = {
    "stage": "study",
    "seed": Key(1, "of the first run of a method; the others follow"),
    "seeds": positive(3, "runs of each method"),
    "rows": Key("", "file of finished runs: one JSON line each"),
    "page": Key("", "Markdown file, tables between <!-- study --> and <!-- /study -->; empty: printed"),
    "only": Key("", "runs only these methods, with commas between; empty: all"),
    "most_runs": natural(None, "runs at most; 0: only writes the tables; None: all without a line", int),
    "keep_runs": Key(False, "keeps run folders after their line is written"),
    "prepare_order": Key("", "names of `prepare` (folder -> command), done first, once, in this order"),
    "training": Key("", f"what all methods have in common: {_COMMAND}"),
    "table_order": Key("", "titles of `tables` (title -> methods, compared with the first)"),
    "evaluation": Key("", f"the games that measure what was learned: {_COMMAND}"),
    "claims": Key(
        "",
        "'A > B: measure', by more than a number where one is added: the 95 % interval of the paired difference",
    ),
    "goal": Key(
        "defaultgoal",
        "of the annotator whose labels judge the games; another goal or lexicon is another run",
    ),
    "lexicon": {"file": Key("", "a YAML file, or a built-in one; empty: nethack.yaml")},
    "games": {},  # method -> flags of its games
    "curves": {},
    "measures": Key("", "columns of the tables; curves (table -> measure) are of the training's episodes"),
    "resamples": RESAMPLES,
}


def study(base: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> Callable[..., ConfigDict]:
    """The function `get_config` of a study: `base`, with the changes of a variant."""

    def get_config(variant: str | None = None) -> ConfigDict:
        if (variant or "") not in variants:
            raise unknown_variant(variant, variants)
        values = {**base, **variants[variant or ""]}
        for order, named in (("prepare_order", "prepare"), ("table_order", "tables")):
            values.setdefault(order, ",".join(values[named]))
        own = {name: value for name, value in values.items() if isinstance(value, Mapping)}
        return update(
            section(STUDY | own), {name: value for name, value in values.items() if name not in own}
        )

    return get_config


# Quirks of the published code, each off unless a config turns it on.
COMPAT = {
    "sober_mask": "hallucination together with any other condition counts as sober",
    "oracle_patch_edge": "the 3x3 patch round the hero is empty at the map's edge",
    "crop_row_offset": "the 12x12 window is one row too high",
    "seed_noop": "games have no seeds of their own, so that they cannot be played again",
    "message_count_off": "message counts are 1 when the intrinsic coefficient is 0",
    "vtrace_bootstrap": "the value after a rollout is made up from its last step",
    "timeout_as_terminal": "the step limit ends an episode like a death",
    "running_statistics": "mean and variance are merged batch by batch from a prior",
    "quantile_two_decimals": "the threshold is the two-decimal number of the CSV file",
    "glyph_crop_centre": "the glyph crop sits at the map's top left and blends glyph numbers",
    "answer_first_match": "the first verdict in an answer decides",
    "oni_ranking_raw_reward": "the agent gets the raw output of the ranking network",
    "oni_requeue": "messages without a label are queued again with every batch, and asked as often as they were seen",
    "oni_untrained_reward": "a classifier or ranker that was never trained pays",
    "oni_label_anywhere": "the word for yes counts anywhere in a reply; one without it is a no (of pairs: a tie)",
    "oni_extended_steps": "with 28 actions: skills, kills and prompts as the published environment sees them",
    "glam_raw_logit_score": "scores of actions are sums of raw logits",
    "glam_pad_plus_one": "each place of padding adds 1 to a score",
    "glam_scaled_probability_score": "scores are probabilities over the greatest of all actions",
    "glam_end_token": "end tokens stand round prompts and actions",
    "glam_untrained_dropout": "models made from a config sample and learn with dropout",
    "glam_value_broadcast": "each value is pulled to the returns of the steps that a process learns from together",
    "glam_french_goal": "prompts word French goals as the released code does",
    "glam_fixed_kind_per_env": "each environment of the Mixed levels keeps one kind of task",
    "drrn_first_observation": "DRRN does not read the first observation of an episode",
    "symbolic_train_mode_batchnorm": "batch normalisation takes the batch's statistics while it plays",
    "bc_unshuffled": "pairs are learned from in their order",
    "bc_pad_in_loss": "pads up to target_tokens count in the loss",
    "ilql_utterance_int_reward": "rewards of utterances are cut to integers",
    "ilql_policy_loss_norm": "the policy's loss is divided by the number of all tokens",
    "ilql_padded_positions": "a dialogue without actions has a weight at position 0",
    "ilql_utterance_truncation": "with max_len, as many states of utterances are kept as of tokens",
    "ilql_next_q_zero": "behind the last action stands a row of zeros to bootstrap from",
    "ilql_target_dropout": "dropout in the target trunk and in the policy's weights, too",
    "chai_scores": "CHAI scores candidates as the released code does",
    "wordle_branch_restarts": "branches begin on an empty board",
    "wordle_top_p_rows": "a loss in six rows ranks like a win in six",
    "visdial_last_turn_free": "the tenth turn costs nothing where the goal was not reached",
    "upvote_zero_one": "upvote_model pays 1 and 0 for 1 and -1",
}


def compat(names: str) -> dict[str, Key]:
    """The switches of a stage, all off, from their names with spaces between; KeyError for an unknown one."""
    return {name: Key(False, f"quirk of the published code: {COMPAT[name]}") for name in names.split()}


def on(*names: str) -> dict[str, bool]:
    """The changes of a variant that turn these switches on."""
    return {f"compat.{name}": True for name in names}


# Keys that the trainings of language models from a dataset share.
TRAINING_FROM_TEXT = {
    "early_stopping": EARLY_STOPPING,
    "keep_checkpoints": KEEP_CHECKPOINTS,
    "num_devices": NUM_DEVICES,
    "sharding": SHARDING,
    "chunk_steps": CHUNK_STEPS,
    "matmul_precision": MATMUL_PRECISION,
    "save_every_seconds": SAVE_EVERY_SECONDS,
    "nonfinite": NONFINITE,
    "hosts": HOSTS,
    "wandb": WANDB,
    "profile": profile(),
}
