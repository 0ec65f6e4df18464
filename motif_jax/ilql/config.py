"""The config of trainings on dialogues (docs/ilql.md)."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.training.config import TextDatasetConfig
from motif_jax.schema import (
    LENGTH,
    fraction,
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class PolicyWeights:
    """Weights of the policy's loss by the advantage A of each action."""

    beta: float = natural(0.0, "an action has weight exp(beta A); see exponential")
    exponential: bool = key(True, "False: an action has weight beta where A > 0, else 1 - beta")
    most_weight: float | None = positive(None, "upper limit of an action's weight; None: no limit")
    context_weight: float = natural(
        0.0, "weight of tokens that no action of the agent has, such as the other side's"
    )


@section_class
class TextMethod:
    """The method of a training on dialogues, and the numbers of its losses."""

    name: str = key("ilql", "a method of METHOD above, or module:Class (docs/ilql.md)")
    discount: float = fraction(
        0.99, "discount from one action (a token; of ilql_utterance an utterance) to the next"
    )
    expectile: float = key(
        0.7, "expectile of the target Q that V estimates (tau of the paper); 0.5: the mean", above=0, below=1
    )
    polyak: float = fraction(0.005, "share by which targets move towards the Qs after every step")
    copy_every: int | None = positive(
        None, "steps between copies of the Qs to the targets; None: targets move by polyak alone"
    )
    double_q: bool = key(True, "learns two Qs, of which targets take the smaller one")
    separate_policy: bool = key(
        True, "gives the policy a trunk of its own; False: it shares that of the values"
    )
    separate_target: bool = key(
        True, "gives the target Qs a trunk of their own; False: they share that of the values"
    )
    advanced_mlp: bool = key(False, "heads of the published second form: a residual layer with dropout")
    detach_v: bool = key(False, "keeps the gradient of V from the trunk")
    detach_q: bool = key(False, "keeps the gradient of Q from the trunk")
    detach_policy: bool = key(False, "keeps the gradient of the policy from the trunk")
    q_min: float | None = key(None, "lower limit of target Qs; None: no limit")
    q_max: float | None = key(None, "upper limit of target Qs; None: no limit")
    monte_carlo: bool = key(False, "V estimates the return that followed instead of the target Q")
    cql_temperature: float = positive(1.0, "temperature of the conservative term's softmax")
    margin: float = natural(
        0.0, "margin by which Q of the data's action shall exceed the others, of loss.margin"
    )
    reward_scale: float = positive(1.0, "divisor of rewards")
    policy: PolicyWeights = part(PolicyWeights)


@section_class
class CandidateTexts:
    """Candidate texts of method chai."""

    count: int = positive(5, "candidates of the policy in each state of the data, for method chai")
    max_tokens: int = positive(6, "tokens of a candidate at most", most=LENGTH)
    together: int = positive(4, "states whose candidates one program writes")
    temperature: float = key(1.0, "temperature at which candidates are drawn")
    top_k: int = key(0, "likeliest tokens among which candidates are drawn; 0: all")
    top_p: float = key(1.0, "probability that the tokens among which candidates are drawn have together")
    cache_mebibytes: int = positive(
        1024, "size of the cache of candidates in candidates/ of the run; the oldest are dropped"
    )
    folder: str | None = key(None, "folder of the cache, for several runs of one policy; None: the run's")


@section_class
class TextPpo:
    """Numbers of method ppo."""

    epochs: int = positive(4, "passes over the batch_size episodes of a step, for method ppo")
    minibatches: int = positive(4, "minibatches of a pass, each one optimiser step in `accumulate` parts")
    clip_ratio: float = positive(0.2, "limit of the probability ratio's change in the surrogate: [0.8, 1.2]")
    clip_value: float = positive(0.2, "limit of the value's change, in units of the reward")
    value_coefficient: float = natural(0.1, "weight of the value's loss")
    entropy_coefficient: float = natural(0.0, "weight of the entropy")
    gae_lambda: float = fraction(0.95, "lambda of generalised advantage estimation")
    normalise_advantage: bool = key(
        True, "scales advantages to mean 0 and deviation 1 over the tokens of a step"
    )
    kl: sections.Kl = part(sections.Kl)


@section_class
class HeldOutDialogues:
    """Dialogues that are held out, on which losses are measured."""

    share: float = plain_key(
        0.02,
        "share of the data (of groups) that is held out: 1 of n where it is 1 / n",
        above=0,
        maximum=0.5,
    )
    data: str | None = plain_key(
        None, "other data in place of a share; of a stream they are drawn beforehand"
    )
    data: str | None = key(
        None, "other dialogues in place of a share of the data; of a stream they are drawn beforehand"
    )


@section_class
class DialogueFilter:
    """The dialogues that are learned from."""

    top: float = key(
        1.0, "share of the data with the highest returns that is learned from (%BC); 1: all", above=0, most=1
    )
    bottom: float = key(1.0, "share with the lowest returns that is learned from; 1: all", above=0, most=1)
    cutoff: float | None = key(
        None, "lowest return of a dialogue that is learned from, without token_reward; None: any"
    )


@section_class
class LossWeights:
    """Weights of the loss terms."""

    q: float = natural(1.0, "weight of Q's loss")
    v: float = natural(1.0, "weight of V's loss")
    policy: float = natural(1.0, "weight of the policy's cross-entropy")
    cql: float = natural(0.0, "weight of the conservative term of Q")
    margin: float = natural(0.0, "weight of the margin term of Q")


@section_class
class TextTrunks(sections.ModelSizes):
    """The trunks of an agent that writes."""

    checkpoint: str | None = plain_key(
        None, "trunks begin as this folder or hub model; None: fresh, of these sizes"
    )
    max_length: int = count(1024, "positions of fresh trunks: tokens of a dialogue at most")


@section_class
class InitialParameters:
    """Runs that an agent's parameters begin as."""

    policy: str | None = key(None, "run of train_text whose policy the agent begins with; None: fresh")
    value: str | None = key(None, "run of train_text whose values the agent begins with; None: fresh")


@section_class
class EvaluationGames:
    """Episodes of evaluations."""

    episodes: int = natural(16, "episodes of an evaluation, the same each time; 0: none")
    decode: sections.Decode = part(sections.Decode)


@section_class
class TextConfig(TextDatasetConfig):
    """A training of an agent that writes."""

    task: str = key("wordle", "a text task, or module:Class (docs/ilql.md)")
    options: str = key(
        "", 'options of the task as JSON: {"num_words": 100}; data of collect_text bring theirs'
    )
    data: str | None = key(
        None, "dialogues (.jsonl, .parquet) or their folder; None: drawn as by collect_text"
    )
    kind: str = key("games", "kind of dialogues that are drawn without config.data")
    policy: str = key(
        "mixture(0.5, optimal, repeat(optimal))", "policy of the task that plays the dialogues that are drawn"
    )
    held_out: HeldOutDialogues = part(HeldOutDialogues)
    filter: DialogueFilter = part(DialogueFilter)
    token_reward: sections.TokenReward = part(sections.TokenReward)
    method: TextMethod = part(TextMethod)
    loss: LossWeights = part(LossWeights)
    candidates: CandidateTexts = part(CandidateTexts)
    ppo: TextPpo = part(TextPpo)
    network: TextTrunks = part(TextTrunks)
    initial: InitialParameters = part(InitialParameters)
    max_len: int | None = count(
        None, "tokens of a dialogue at most, the rest is cut off; None: what the model has room for"
    )
    length_buckets: bool = key(True, "batches dialogues of similar length; False: pads all to the longest")
    batch_size: int = sections.batch(64, "dialogues of a step")
    accumulate: int = sections.ACCUMULATE
    average: str = one_of(
        ("batch", "micro_batch"),
        "mean of the loss over a step's actions, or over its micro-batches' means (published)",
    )
    max_steps: int = positive(10_000, "optimiser steps of the training")
    evaluate_every: int = sections.EVALUATE_EVERY
    evaluation_batches: int = positive(16, "batches of held-out dialogues of an evaluation at most")
    games: EvaluationGames = part(EvaluationGames)
    optimizer: sections.DecayingOptimizer = part(sections.DecayingOptimizer, final_fraction=0.1)
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT
    logits_chunk: int | None = sections.LOGITS_CHUNK
    lora: sections.Lora = part(sections.Lora)
    log_every_seconds: float = positive(20.0, "seconds between rows of Q, V and advantages (docs/metrics.md)")
