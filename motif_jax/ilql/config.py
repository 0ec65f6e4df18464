"""The configs of collections of dialogues and of trainings on them (docs/ilql.md)."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.compat import quirk
from motif_jax.core.config import available_cores
from motif_jax.core.training.config import TextDatasetConfig
from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.dialogues.config import TokenRewardSection
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

# The published noisy data with expert .5: else a word that was guessed before.
NOISY_EXPERT = "mixture(0.5, optimal, repeat(optimal))"


@section_class
class PolicyWeights:
    """What the policy learns most from."""

    beta: float = non_negative(0.0, "an action has weight exp(beta A); see exponential")
    exponential: bool = plain_key(
        True,
        "weights are exp(beta x A); False: an action has weight beta where A > 0, else 1 - beta",
    )
    most_weight: float | None = positive(None, "weights are clipped to it")
    context_weight: float = non_negative(0.0, "weight of tokens that the agent did not say")


@section_class
class TextMethod:
    """The method of a training on dialogues."""

    name: str = plain_key("ilql", "method of METHOD above, or module:Class (docs/ilql.md)")
    discount: float = fraction(
        0.99,
        "discount from one action (a token; of ilql_utterance and chai an utterance) to the next",
    )
    expectile: float = plain_key(
        0.7, "expectile of the target Q that V estimates; 0.5: the mean", above=0, below=1
    )
    polyak: float = fraction(0.005, "share by which targets move to the Qs after every step")
    copy_every: int | None = positive(
        None, "steps between whole copies to the targets; None: no copies"
    )
    double_q: bool = plain_key(True, "two Qs, of which targets take the smaller one")
    separate_policy: bool = plain_key(
        True, "the policy has a trunk of its own; else that of the values"
    )
    separate_target: bool = plain_key(True, "the target Qs have a trunk of their own")
    advanced_mlp: bool = plain_key(False, "the other form of heads: a residual layer with dropout")
    detach_v: bool = plain_key(False, "no gradient of V reaches the trunk")
    detach_q: bool = plain_key(False, "no gradient of Q reaches the trunk")
    detach_policy: bool = plain_key(False, "no gradient of the policy reaches the trunk")
    q_min: float | None = plain_key(None, "target Qs are at least this")
    q_max: float | None = plain_key(None, "target Qs are at most this")
    monte_carlo: bool = plain_key(
        False, "V estimates the return that followed instead of the target Q"
    )
    cql_temperature: float = positive(
        1.0, "T of the conservative term: log sum exp(Q / T) - Q(a) / T"
    )
    margin: float = non_negative(0.0, "margin of the margin term")
    reward_scale: float = positive(1.0, "rewards are divided by it")
    policy: PolicyWeights = subsection(PolicyWeights)


@section_class
class CandidateTexts:
    """Texts among which method chai chooses."""

    count: int = positive(
        5, "texts that method chai draws from the policy in each state of the data"
    )
    max_tokens: int = positive(6, "greatest number of tokens of a candidate text", maximum=LENGTH)
    together: int = positive(4, "states whose candidates are written in one program")
    temperature: float = plain_key(1.0, "temperature of the draws of candidate texts")
    top_k: int = plain_key(0, "tokens that may be drawn; 0: all")
    top_p: float = plain_key(1.0, "probability of the tokens that may be drawn")
    cache_mebibytes: int = positive(1024, "kept in candidates/ of the run; the oldest are dropped")
    folder: str | None = plain_key(None, "keeps candidates here, for several runs of one policy")


@section_class
class HeldOutDialogues:
    """Dialogues to measure with."""

    share: float = plain_key(
        0.02,
        "share of the data (of groups) on which losses are measured: 1 of n where it is 1 / n",
        above=0,
        maximum=0.5,
    )
    data: str | None = plain_key(
        None, "other data in place of a share; of a stream they are drawn beforehand"
    )


@section_class
class DialogueFilter:
    """Which dialogues are learned from, and measured with: the held-out part is filtered, too."""

    top: float = plain_key(
        1.0,
        "%BC: only this best part, by return, of the data and of the held-out part",
        above=0,
        maximum=1,
    )
    bottom: float = plain_key(
        1.0,
        "%BC: only this worst part, by return, of the data and of the held-out part",
        above=0,
        maximum=1,
    )
    cutoff: float | None = plain_key(
        None, "%BC: only dialogues with a return of at least this, without token_reward"
    )


@section_class
class LossWeights:
    """Weights of the loss terms."""

    q: float = non_negative(1.0, "weight of Q's term")
    v: float = non_negative(1.0, "weight of V's term")
    policy: float = non_negative(1.0, "weight of the policy's cross-entropy")
    cql: float = non_negative(
        0.0, "weight of the conservative term, of methods with a Q of every token and of chai"
    )
    margin: float = non_negative(
        0.0, "weight of the margin term, of methods with a Q of every token"
    )


@section_class
class TextTrunks(sections.ModelSizes):
    """The trunks of an agent that writes."""

    checkpoint: str | None = plain_key(
        None, "trunks begin as this folder or hub model; None: fresh, of these sizes"
    )
    # Behaviour cloning of SmolLM2-135M with six new delimiters, held-out loss of the end of an
    # action after 40 steps: 0.011 and 3.48.
    new_rows: str = one_of(
        ("end_of_text", "mean"),
        "where the rows of tokens that the task adds to the checkpoint begin: at that of its end of text, or at the mean of its table; both with "
        "a little noise",
    )
    max_length: int = length_key(1024, "positions of the table")


@section_class
class TextLora(sections.Lora):
    """Low-rank additions to frozen trunks."""

    new_tokens: bool = plain_key(
        True,
        "also learns the rows of tokens that the task adds to network.checkpoint, such as delimiters; False: they stay as they begin",
    )


@section_class
class InitialParameters:
    """Runs that an agent begins as."""

    policy: str | None = plain_key(None, "a run that the policy's parameters are taken from")
    value: str | None = plain_key(None, "a run that the values' parameters are taken from")


@section_class
class EvaluationGames:
    """Episodes of evaluations."""

    episodes: int = non_negative(16, "played at every evaluation, the same each time; 0: none")
    decode: Decode = subsection(Decode)


@section_class
class IlqlCompat:
    """Quirks of the published trainings on dialogues, each off unless a config turns it on."""

    ilql_utterance_int_reward: bool = quirk("rewards of utterances are cut to integers")
    ilql_policy_loss_norm: bool = quirk("the policy's loss is divided by the number of all tokens")
    ilql_padded_positions: bool = quirk(
        "in dialogues that were cut off one more action counts where they are not the longest of their micro-batch; one without actions has a weight "
        "at position 0"
    )
    ilql_utterance_truncation: bool = quirk(
        "with max_len, as many states of utterances are kept as of tokens"
    )
    ilql_next_q_zero: bool = quirk("a row of zeros after the last action is bootstrapped from")
    ilql_target_dropout: bool = quirk(
        "dropout in the target trunk and in the policy's weights, too"
    )
    chai_scores: bool = quirk("CHAI scores candidates as the released code does")


@section_class
class TaskCompat:
    """Quirks of the published text tasks; a task takes those whose names begin with its
    `switches`.
    """

    wordle_branch_restarts: bool = quirk("branches begin on an empty board")
    wordle_top_p_rows: bool = quirk("a loss in six rows ranks like a win in six")
    visdial_last_turn_free: bool = quirk(
        "the tenth turn costs nothing where the goal was not reached"
    )
    upvote_zero_one: bool = quirk("upvote_model pays 1 and 0 for 1 and -1")


@section_class
class TextConfig(TextDatasetConfig):
    """A training of an agent that writes."""

    task: str = plain_key("wordle", "a text task, or module:Class (docs/ilql.md)")
    options: str = plain_key(
        "", 'options of the task, as JSON: {"num_words": 100}; data of collect_text bring theirs'
    )
    data: str | None = plain_key(
        None, "dialogues (.jsonl, .parquet) or their folder; None: drawn as by collect_text"
    )
    turns: str = one_of(
        ("auto", "own", "new"),
        "what surrounds the utterances of task=dialogues: 'own' the model's turns, by its chat template; 'new' delimiters, most of them new "
        "tokens; 'auto' own turns where the model has a chat template whose turns begin and end with special tokens",
    )
    kind: str = plain_key("games", "kind of dialogues that are drawn")
    policy: str = plain_key(NOISY_EXPERT, "policy that plays the dialogues that are drawn")
    held_out: HeldOutDialogues = subsection(HeldOutDialogues)
    filter: DialogueFilter = subsection(DialogueFilter)
    token_reward: TokenRewardSection = subsection(TokenRewardSection)
    method: TextMethod = subsection(TextMethod)
    loss: LossWeights = subsection(LossWeights)
    candidates: CandidateTexts = subsection(CandidateTexts)
    network: TextTrunks = subsection(TextTrunks)
    initial: InitialParameters = subsection(InitialParameters)
    max_len: int | None = length_key(
        None, "tokens of a dialogue that are kept; None: what the model has room for"
    )
    length_buckets: bool = plain_key(
        True, "batches dialogues of similar length; False: pads to the longest"
    )
    batch_size: int = sections.batch_size_key(64, "dialogues of a step")
    accumulate: int = sections.ACCUMULATE
    average: str = one_of(
        ("batch", "micro_batch"),
        "scope of a mean: a step's actions, or those of a micro-batch (published)",
    )
    max_steps: int = positive(10_000, "number of optimiser steps of the training")
    evaluate_every: int = sections.EVALUATE_EVERY
    evaluation_batches: int = positive(
        16, "greatest number of batches of held-out dialogues in an evaluation"
    )
    games: EvaluationGames = subsection(EvaluationGames)
    optimizer: sections.DecayingOptimizer = subsection(
        sections.DecayingOptimizer, final_fraction=0.1
    )
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT
    logits_chunk: int | None = sections.LOGITS_CHUNK
    lora: TextLora = subsection(TextLora)
    compat: IlqlCompat = IlqlCompat()
    log_every_seconds: float = positive(
        20.0, "seconds between rows of Q, V and advantages (docs/metrics.md)"
    )


@section_class
class CollectTextConfig:
    """A collection of dialogues."""

    seed: int = sections.seed(1)
    task: str = plain_key(
        "wordle", "wordle, visdial, reddit, babyai_text, or module:Class (docs/ilql.md)"
    )
    kind: str = plain_key(
        "games",
        "what is drawn. Wordle: 'games', 'branch', 'adversarial', 'tweets'; visdial: 'recorded', 'games' (talks with the server), "
        "'reward_cache' (recorded ones, valued by the server); reddit: 'recorded', 'games'. BabyAI-Text: 'games', or 'steps', each a dialogue of "
        "an agent's prompt, its action, and what is seen next, or 'hindsight', those that led to a thing, which the prompt names as its goal; "
        "num_dialogues counts episodes of both",
    )
    # Of 'branch' and 'adversarial' the expert's games, what branches off comes on top.
    num_dialogues: int = non_negative(100_000, "number of dialogues; 0: all recorded ones")
    policy: str = plain_key(
        NOISY_EXPERT,
        "who plays; for 'branch' and 'adversarial' the expert, for 'tweets' the simulated people. Wordle: fitting, random, random_mixture(P, LIST), "
        "start(LIST), optimal(START), repeat(START, FIRST_N), wrong(LIST), mixture(P, ONE, OTHER), monte_carlo(GAMES, PLAYER); LIST in quotes, a "
        "list's name or file",
    )
    options: str = plain_key(
        "", 'options of a task from outside the package, as JSON: {"words": 3}'
    )
    # The process that collects only hands out work, so all cores play.
    workers: int = positive(available_cores(), "number of processes that play")
