"""Sections and keys that several configs have, each with its defaults, ranges and meanings (`schema.py`)."""

from __future__ import annotations

from typing import Any

from motif_jax import schema
from motif_jax.core import cluster
from motif_jax.core.config import default_workers
from motif_jax.schema import (
    DTYPES,
    batch_size_key,
    fraction,
    layer_size_key,
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
)


def seed(default: int, maximum: int | None = None) -> Any:
    """The key `seed` of a stage; with `maximum` a negative seed is refused, too."""
    return plain_key(
        default, "seed of all random numbers", minimum=None if maximum is None else 0, maximum=maximum
    )


SEED = seed(0)
SEED_32 = seed(0, maximum=2**32 - 1)
DTYPE = one_of(DTYPES, "dtype of the computation; parameters, optimiser and losses are float32")
MATMUL_PRECISION = one_of(
    ("default", "highest"),
    "precision of float32 matrix products; 'default' rounds their factors to TF32 (10 bits) on recent GPUs",
)
SAVE_EVERY_SECONDS = positive(300.0, "seconds between checkpoints, besides those of evaluations")


@section_class
class ClusterHosts:
    """The hosts of a run of several."""

    coordinator: str | None = plain_key(
        None, "'HOST:PORT' of the first of several hosts, or 'slurm' under srun"
    )
    count: int | None = positive(None, "number of hosts, one process each")
    index: int | None = non_negative(None, "index of this host")
    heartbeat_timeout_seconds: float = plain_key(
        100.0, "the other hosts end when one is silent for this long", minimum=1
    )
    connect_timeout_seconds: float = positive(
        300.0, "seconds that the hosts wait for each other at the start"
    )

    def position(self) -> cluster.HostPosition:
        """The position of this process among the hosts. Raises UserError: the values do not fit together."""
        return cluster.position(self.coordinator, self.count, self.index)


NUM_DEVICES = positive(
    None, "number of devices of each host; None: all. With dropout a run resumes only with as many", int
)


@section_class
class Nonfinite:
    """What happens after a loss that is not finite."""

    policy: str = one_of(
        ("stop", "skip"),
        "if a loss, a gradient or a parameter is not finite, the step is not taken and its batch is written to nonfinite/step-N.npz: "
        "'stop' ends the training there, 'skip' continues",
    )
    most_skips: int = positive(10, "'skip' ends a run after this many")

    @property
    def budget(self) -> int:
        """How many steps a run may skip before it ends."""
        return self.most_skips if self.policy == "skip" else 0


@section_class
class EarlyStopping:
    """When a training ends before its last step."""

    patience: int = non_negative(
        0, "number of evaluations without a better held-out loss after which the run ends; 0: never"
    )


@section_class
class Wandb:
    """Weights & Biases."""

    enabled: bool = plain_key(False, "logs to Weights & Biases, too")
    project: str = plain_key("motif_jax", "project of the run in W&B")
    name: str | None = plain_key(None, "name of the run in W&B; None: W&B's own")


@section_class
class Sharding:
    """How a model is split over devices."""

    fsdp: int = positive(
        1,
        "for models that do not fit one device: splits parameters and optimiser over fsdp x tensor devices of a host, batches over the "
        "other devices and fsdp (docs/language.md); 1 and 1: every device holds all",
    )
    tensor: int = positive(1, "devices along tensor, which work on the same rows; see fsdp")


@section_class
class Lora:
    """Low-rank additions to a frozen model."""

    patterns: str = plain_key(
        "",
        "layers that get low-rank additions, such as '*/attention/query,*/attention/value' (docs/language.md); only they and the heads "
        "are learned; empty: all is learned",
    )
    rank: int = layer_size_key(8, "rank of the low-rank additions")
    alpha: float = positive(16.0, "scale of the low-rank additions, which are multiplied by alpha / rank")


@section_class
class LoraOnBase(Lora):
    """Low-rank additions to a frozen model of any precision."""

    base: str = one_of(("float32", "bfloat16", "int8", "nf4"), "dtype or format of the frozen weights")


@section_class
class Profile:
    """A trace of XLA."""

    start: int | None = non_negative(None, "update after which a trace starts; None: no trace")
    steps: int = positive(2, "number of updates in the trace")
    server_port: int | None = positive(
        None, "port at which TensorBoard can ask for a trace; None: none", below=1 << 16
    )


@section_class
class Optimizer:
    """Adam and its learning rate."""

    learning_rate: float = positive(1e-4, "learning rate of Adam", maximum=100.0)
    schedule: str = one_of(
        ("constant", "linear", "cosine"),
        "'linear' and 'cosine' fall until the last step, down to final_fraction of the rate",
    )
    warmup_steps: int | None = non_negative(0, "optimiser steps over which a factor of the rate rises to 1")
    final_fraction: float = fraction(0.0, "final learning rate of the schedule, as a share of the first")
    b1: float = plain_key(0.9, "decay rate of Adam's mean", minimum=0, below=1)
    b2: float = plain_key(0.999, "decay rate of Adam's second moment", minimum=0, below=1)
    eps: float = positive(1e-8, "epsilon of Adam, added to the denominator")
    max_gradient_norm: float = non_negative(0.0, "gradients of a greater norm are clipped to it; 0: no clip")


@section_class
class DecayingOptimizer(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = non_negative(0.0, "weight decay of matrices, times the learning rate")


DROPOUT = plain_key(0.1, "share of units left out while training (dropout)", minimum=0, below=1)
# Keys of trainings in steps.
ACCUMULATE = batch_size_key(1, "micro-batches of a step, one after the other: changes only memory")
CHUNK_STEPS = batch_size_key(8, "optimiser steps of one program")
EVALUATE_EVERY = positive(500, "steps between evaluations")
KEEP_CHECKPOINTS = positive(2, "number of newest checkpoints that stay, besides the best")
REMAT = plain_key(False, "computes activations again in the backward pass instead of keeping them")
LOGITS_CHUNK = positive(
    None,
    "positions whose logits and Qs of all tokens are in memory at once; None: all of a micro-batch. Dropout of heads depends on it",
    int,
)


@section_class
class Kl:
    """The penalty on the divergence from the first policy (rl/algorithms/kl_penalty.py)."""

    coefficient: float = non_negative(
        0.0, "coefficient of log pi - log pi_ref in the reward, with pi_ref the policy at the start; 0: none"
    )
    target: float | None = positive(
        None, "nats an action (free text: an utterance) to which the coefficient adapts; None: it is fixed"
    )
    horizon: int = positive(10_000, "actions over which the coefficient changes by the relative error")


@section_class
class ModelSizes:
    """The sizes of a fresh language model."""

    width: int = layer_size_key(768, "width of the residual stream")
    layers: int = layer_size_key(12, "number of layers; of a T5, on each side")
    heads: int = layer_size_key(12, "number of attention heads")


# Keys of stages that play episodes.
WORKERS = positive(default_workers(), "number of processes that play")
LANES = length_key(32, "episodes of an agent at a time; the network sees lanes / 2 at once", multiple_of=2)
GREEDY = plain_key(False, "takes the most likely action instead of drawing one (networks only)")
RESAMPLES = positive(2000, "number of resamples of the bootstrap")
CONFIDENCE = plain_key(0.95, "confidence level of the intervals", above=0, below=1)
CHECKPOINT = plain_key("latest", "'latest', 'best' (by mean return in training), or a step; 0: before it")
# An agent keeps the options of its training; on another level without kind and distractors.
PLAYED_LEVEL = plain_key(None, "level to play; None: the agent's, or BabyAI-MixedTrainLocal-v0", str)
THREADS = layer_size_key(1, "environments that answer at a time; take more where they wait for a server")
GYM = {
    "text": plain_key("", "text of a step of gym:ID: 'module:function', 'info:KEY', 'obs:KEY'; empty: none"),
    "text_bytes": positive(256, "greatest number of bytes of a text of gym:ID"),
    "modules": plain_key("", "modules that register environments of gym:ID, with commas between"),
}
LAST_TEXT = plain_key(
    None,
    "whether the text of an episode's final observation is collected and paid, with the step that led there; None: yes, but not in "
    "NetHack, where the published systems do not",
    bool,
)
REWARD_STEP = non_negative(None, "checkpoint of the reward, with its quantiles; None: the newest", int)
QUANTILE = fraction(0.5, "values at or below this quantile become 0; None: no threshold", allow_none=True)
THRESHOLD = one_of(
    ("quantile", "auto"),
    "'quantile', or 'auto': above the texts that the judge called ties and above the empty text (docs/rewards.md)",
)
NORMALISE = plain_key(True, "subtracts the rewards' mean and divides by their standard deviation")
COUNT_EXPONENT = non_negative(3.0, "a message's reward is divided by its count in the episode to this power")


@section_class
class Scoring:
    """The reward that rates episodes."""

    dir: str | None = plain_key(
        None,
        "a reward run, or its .safetensors file; None: the agent's (or evaluation's) own, if there is one, with its settings; empty: none",
    )
    step: int | None = REWARD_STEP
    normalise: bool = NORMALISE
    quantile: float | None = QUANTILE
    threshold: Any = THRESHOLD
    count_exponent: float = COUNT_EXPONENT

    @property
    def level(self) -> float | str | None:
        """The argument `quantile` of `RewardModel.normalisation`."""
        return "auto" if self.threshold == "auto" else self.quantile


@section_class
class Forms:
    """Files that show episodes."""

    html: bool = plain_key(True, "writes a player for a browser")
    ttyrec: bool = plain_key(True, "writes a file for nle-ttyplay2")
    gif: bool = plain_key(False, "writes a movie")
    frames_per_second: float = positive(10.0, "frames per second of movies")
    start: int = non_negative(
        0, "step at which movies start; they show steps [start, stop), every `every`-th and the rewarded ones"
    )
    stop: int | None = positive(None, "step at which movies end, see start; None: the end")
    every: int = positive(1, "movies show every so many-th step, and the rewarded ones")


@section_class
class TokenReward:
    """Rewards of the tokens of actions."""

    constant: float = plain_key(0.0, "reward of every token of an action")
    file: str | None = plain_key(None, "JSON file {token: value} of rewards, in place of the constant")
    scale: float = plain_key(1.0, "factor on the values of the file")
    shift: float = plain_key(0.0, "amount that is added to the scaled values")


@section_class
class Decode:
    """How text agents choose what they write."""

    kind: str | None = plain_key(
        None,
        "'sample', 'greedy', 'beam' (of `width`), or 'rerank': the best of `batches` x `width` samples (utterance ILQL and CHAI: by the value "
        "of the whole action; others: by sums over its tokens). None: as published, 'rerank' for these two methods, else 'sample'",
        choices=("sample", "greedy", "beam", "rerank"),
    )
    max_tokens: int | None = length_key(
        None, "greatest number of tokens of an action; None: the longest of the agent's data"
    )
    width: int | None = layer_size_key(
        None, "number of candidate texts (beams); None: 4 for utterance ILQL, 5 for CHAI, else 1"
    )
    batches: int = positive(1, "number of batches of samples, for 'rerank'")
    temperature: float = plain_key(1.0, "temperature of the policy's logits, before they are steered")
    top_k: int = plain_key(0, "number of most likely tokens that may be drawn; 0: all")
    top_p: float = plain_key(1.0, "probability of the most likely tokens that may be drawn together")
    advantage_weight: float = plain_key(16.0, "weight of Q - V, which is added to the logits")
    advantage_clip: float | None = plain_key(
        None, "greatest addition to a logit; 0: tokens can only become less likely"
    )
    advantage_form: str = one_of(("exp", "sign"), "'sign' adds log(weight) where Q > V, else log(1 - weight)")
    logits: bool = plain_key(True, "steers the policy's logits; False: values alone decide")
    advantages: bool = plain_key(True, "steers by advantages; False: the policy alone decides")
    rerank_advantage_weight: float = plain_key(
        1.0, "weight of the advantages' sum over an action's tokens, for 'rerank'"
    )
    rerank_log_prob_weight: float = plain_key(
        0.0, "weight of the log-probabilities' sum over an action's tokens, for 'rerank'"
    )
    log_prob_weight: float = plain_key(0.0, "utterance ILQL: weight of log pi beside the action's value")
    target_return: float = plain_key(-5.7, "return that a decision transformer is conditioned on")


def quirk(help: str) -> Any:
    """A switch of `Compat`."""
    return plain_key(False, f"quirk of the published code: {help}")


@section_class
class Compat:
    """Quirks of the published code, each off unless a config turns it on."""

    sober_mask: bool = quirk("hallucination together with any other condition counts as sober")
    oracle_patch_edge: bool = quirk("the 3x3 patch round the hero is empty at the map's edge")
    crop_row_offset: bool = quirk("the 12x12 window is one row too high")
    seed_noop: bool = quirk("games have no seeds of their own, so that they cannot be played again")
    message_count_off: bool = quirk("message counts are 1 when the intrinsic coefficient is 0")
    vtrace_bootstrap: bool = quirk("the value after a rollout is made up from its last step")
    timeout_as_terminal: bool = quirk("the step limit ends an episode like a death")
    running_statistics: bool = quirk("mean and variance are merged batch by batch from a prior")
    quantile_two_decimals: bool = quirk("the threshold is the two-decimal number of the CSV file")
    glyph_crop_centre: bool = quirk("the glyph crop sits at the map's top left and blends glyph numbers")
    answer_first_match: bool = quirk("the first verdict in an answer decides")
    oni_ranking_raw_reward: bool = quirk("the agent gets the raw output of the ranking network")
    oni_requeue: bool = quirk(
        "messages without a label are queued again with every batch, and asked as often as they were seen"
    )
    oni_untrained_reward: bool = quirk("a classifier or ranker that was never trained pays")
    oni_label_anywhere: bool = quirk(
        "the word for yes counts anywhere in a reply; one without it is a no (of pairs: a tie)"
    )
    oni_extended_steps: bool = quirk(
        "with 28 actions: skills, kills and prompts as the published environment sees them"
    )
    glam_raw_logit_score: bool = quirk("scores of actions are sums of raw logits")
    glam_pad_plus_one: bool = quirk("each place of padding adds 1 to a score")
    glam_scaled_probability_score: bool = quirk("scores are probabilities over the greatest of all actions")
    glam_end_token: bool = quirk("end tokens stand round prompts and actions")
    glam_untrained_dropout: bool = quirk("models made from a config sample and learn with dropout")
    glam_value_broadcast: bool = quirk(
        "each value is pulled to the returns of the steps that a process learns from together"
    )
    glam_french_goal: bool = quirk("prompts word French goals as the released code does")
    glam_fixed_kind_per_env: bool = quirk("each environment of the Mixed levels keeps one kind of task")
    drrn_first_observation: bool = quirk("DRRN does not read the first observation of an episode")
    symbolic_train_mode_batchnorm: bool = quirk(
        "batch normalisation takes the batch's statistics while it plays"
    )
    bc_unshuffled: bool = quirk("pairs are learned from in their order")
    bc_pad_in_loss: bool = quirk("pads up to target_tokens count in the loss")
    ilql_utterance_int_reward: bool = quirk("rewards of utterances are cut to integers")
    ilql_policy_loss_norm: bool = quirk("the policy's loss is divided by the number of all tokens")
    ilql_padded_positions: bool = quirk("a dialogue without actions has a weight at position 0")
    ilql_utterance_truncation: bool = quirk(
        "with max_len, as many states of utterances are kept as of tokens"
    )
    ilql_next_q_zero: bool = quirk("behind the last action stands a row of zeros to bootstrap from")
    ilql_target_dropout: bool = quirk("dropout in the target trunk and in the policy's weights, too")
    chai_scores: bool = quirk("CHAI scores candidates as the released code does")
    wordle_branch_restarts: bool = quirk("branches begin on an empty board")
    wordle_top_p_rows: bool = quirk("a loss in six rows ranks like a win in six")
    visdial_last_turn_free: bool = quirk("the tenth turn costs nothing where the goal was not reached")
    upvote_zero_one: bool = quirk("upvote_model pays 1 and 0 for 1 and -1")


def compat(names: str) -> dict[str, schema.Key]:
    """The switches of a stage, all off, from their names with spaces between; KeyError for an unknown one."""
    switches = schema.section_keys(Compat)
    return {name: switches[name] for name in names.split()}


def on(*names: str) -> dict[str, bool]:
    """The changes of a variant that turn these switches on."""
    return {f"compat.{name}": True for name in names}
