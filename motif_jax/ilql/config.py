"""The configs of the stages of ILQL: collections of dialogues, trainings on them, evaluations, and
the model of upvotes (docs/ilql.md).

`TextMethod` has the numbers of a method, which its loss reads (methods.py), and `LossWeights` the
weights of the loss's terms.
"""

from __future__ import annotations

import dataclasses

from motif_jax import schema
from motif_jax.core import sections
from motif_jax.core.compat import quirk
from motif_jax.core.config import available_cores
from motif_jax.core.training.config import GradientConfig, TextDatasetConfig
from motif_jax.play.config import THREADS
from motif_jax.schema import (
    LENGTH,
    fraction,
    layer_size_key,
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
# Of VisDial.
PUBLISHED_RETURN = -5.7
# Values with whole output layers, and those beside low-rank additions to a pretrained model, whose
# sentences few dialogues teach less than its pretraining did.
PUBLISHED_WEIGHT, LOW_RANK_WEIGHT = 16.0, 4.0
_EPISODES = ("kind", ("episodes",))
_RANK = ("kind", ("rank",))
_PLAY = ("kind", ("play",))
# Somebody speaks in a task.
_SPEAKS = ("kind", ("episodes", "play"))


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
    """The method of a training on dialogues: the numbers that its losses read (methods.py)."""

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

    @property
    def trains_values(self) -> bool:
        """Whether a term other than the policy's is trained."""
        return any((self.q, self.v, self.cql, self.margin))

    @property
    def of_terms(self) -> dict[str, float]:
        """The weights by the names of the terms, see `objective.LossTerms`."""
        return {
            "q": self.q,
            "v": self.v,
            "conservative": self.cql,
            "margin": self.margin,
            "policy": self.policy,
        }


@section_class
class CandidateTexts:
    """Texts among which method chai chooses."""

    count: int = positive(
        5, "texts that method chai draws from the policy in each state of the data"
    )
    max_tokens: int = positive(6, "greatest number of tokens of a candidate text", maximum=LENGTH)
    together: int = positive(4, "states whose candidates are written in one program")
    temperature: float = positive(1.0, "temperature of the draws of candidate texts")
    top_k: int = non_negative(0, "tokens that may be drawn; 0: all")
    top_p: float = plain_key(1.0, "probability of the tokens that may be drawn", above=0, maximum=1)
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
class TokenRewardSection:
    """Rewards of the tokens of actions."""

    constant: float = plain_key(0.0, "reward of every token of an action")
    file: str | None = plain_key(
        None, "JSON file {token: value} of rewards, in place of the constant"
    )
    scale: float = plain_key(1.0, "factor on the values of the file", read_when=(".file", ()))
    shift: float = plain_key(
        0.0, "amount that is added to the scaled values", read_when=(".file", ())
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
    temperature: float = positive(
        1.0, "temperature of the policy's logits, before they are steered"
    )
    top_k: int = non_negative(0, "number of most likely tokens that may be drawn; 0: all")
    top_p: float = plain_key(
        1.0,
        "probability of the most likely tokens that may be drawn together",
        above=0,
        maximum=1,
    )
    advantage_weight: float | None = plain_key(
        None,
        "weight of Q - V, which is added to the logits; None: 16 as published, 4 where trunk and values were learned by low-rank additions",
    )
    advantage_clip: float | None = plain_key(
        None, "greatest addition to a logit; 0: tokens can only become less likely"
    )
    advantage_form: str = one_of(
        ("exp", "sign"), "'sign' adds log(weight) where Q > V, else log(1 - weight)"
    )
    logits: bool = plain_key(True, "steers the policy's logits; False: values alone decide")
    advantages: bool = plain_key(True, "steers by advantages; False: the policy alone decides")
    rerank_advantage_weight: float = plain_key(
        1.0, "weight of the advantages' sum over an action's tokens, for 'rerank'"
    )
    rerank_log_prob_weight: float = plain_key(
        0.0, "weight of the log-probabilities' sum over an action's tokens, for 'rerank'"
    )
    log_prob_weight: float = plain_key(
        0.0, "utterance ILQL and CHAI: weight of log pi beside the action's value"
    )
    target_return: float = plain_key(
        PUBLISHED_RETURN,
        "return that a decision transformer is conditioned on; the default is VisDial's published one: give that of your task",
    )


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


@section_class
class EvaluatedTokenReward:
    """Rewards of the tokens of actions, in an evaluation."""

    constant: float | None = plain_key(
        None,
        "reward of every token of an action; None, without a file: the rewards that the agent was trained with, or 0 without an agent",
        read_when=_EPISODES,
    )
    file: str | None = plain_key(
        None, "JSON file {token: value} of rewards, in place of the constant", read_when=_EPISODES
    )
    scale: float = plain_key(1.0, "factor on the values of the file", read_when=(".file", ()))
    shift: float = plain_key(
        0.0, "amount that is added to the scaled values", read_when=(".file", ())
    )


@section_class
class Ranks:
    """The texts that agents' values rank highest and lowest."""

    dialogues: int = positive(
        10_000,
        "number of dialogues to read, from the start of the data; groups are never split",
        read_when=_RANK,
    )
    n_gram: int = positive(3, "tokens of an n-gram", read_when=_RANK)
    tokens: int = positive(
        6, "last tokens of an action for which ranking accuracy is measured", read_when=_RANK
    )


@section_class
class PlayedGames:
    """Games that a person plays at the terminal."""

    mode: str = one_of(
        ("with", "against", "answer"),
        "'with': each turn it proposes what to say, and you take it (Enter) or say something else; 'against': you play, then it plays from the "
        "same seed; 'answer': you are the other side, and it speaks to you",
        read_when=_PLAY,
    )
    games: int = positive(1, "number of games to play", read_when=_PLAY)


@section_class
class EvaluateTextConfig:
    """An evaluation of agents that speak."""

    kind: str = one_of(
        ("episodes", "rank", "play"),
        "'episodes': plays seeded episodes, or reads recorded dialogues; 'rank': the texts of recorded dialogues by agents' values; 'play': "
        "games with a person at the terminal",
    )
    seed: int = sections.SEED
    agent: str | None = plain_key(
        None,
        "a run of train_text, of kind 'rank' one or several with commas between, whose tokens must have values; or, but for 'rank', the Hugging "
        "Face folder of a decoder whose tokenizer has the delimiters, such as export:text_agent writes: a policy without values, which needs "
        "config.task and decode.max_tokens",
    )
    policy: str | None = plain_key(
        None,
        "plays in the agent's place, such as 'optimal'; with an agent, in its task",
        read_when=_SPEAKS,
    )
    task: str | None = plain_key(
        None,
        "task to play: a text task or module:Class (docs/ilql.md); None: the agent's",
        read_when=_SPEAKS,
    )
    options: str = plain_key(
        "",
        'options of the task as JSON, {"num_words": 100}; over those that the agent was trained with',
        read_when=_SPEAKS,
    )
    data: str | None = plain_key(
        None,
        "evaluates these recorded dialogues instead of playing, or ranks their texts (.jsonl, .parquet or a folder with one); None: plays, or, "
        "for the task `dialogues` without an environment, takes those that the training held out",
        read_when=("kind", ("episodes", "rank")),
    )
    url: str | None = plain_key(
        None,
        "address of the task's server, in place of that of options; may change on resuming",
        read_when=_SPEAKS,
    )
    decode: Decode = subsection(Decode)
    token_reward: EvaluatedTokenReward = subsection(EvaluatedTokenReward)
    dtype: str = sections.DTYPE
    episodes: int = positive(1024, "number of episodes to play", read_when=_EPISODES)
    lanes: int = positive(
        1024, "played at a time, in one program", maximum=1 << 20, read_when=_EPISODES
    )
    threads: int = dataclasses.replace(THREADS, read_when=_EPISODES)
    show: int = non_negative(8, "episodes on the page token by token", read_when=_EPISODES)
    published_log: bool = plain_key(
        False, "writes eval_log.pkl as the published evaluations do", read_when=_EPISODES
    )
    rank: Ranks = subsection(Ranks)
    play: PlayedGames = subsection(PlayedGames)


@section_class
class CommentFiles:
    """The comments of Reddit."""

    folder: str = plain_key(
        "", "folder with comments_positive.csv and comments_negative.csv; empty: made up"
    )
    indexes: str = plain_key(
        "", "a JSON list of rows that are used (published: the test split); empty: all"
    )
    num_comments: int = positive(2000, "number of comments that are made up")


@section_class
class UpvoteNetwork:
    """The classifier of comments."""

    # With its tokenizer and, where it has one, its pooler.
    checkpoint: str | None = plain_key(
        None, "a RoBERTa's folder or hub name; None: fresh, of these sizes"
    )
    width: int = layer_size_key(128, "width of the residual stream")
    layers: int = layer_size_key(2, "number of layers; of a T5, on each side")
    heads: int = layer_size_key(4, "number of attention heads")
    max_length: int = length_key(256, "positions of the table")


@section_class
class UpvoteConfig(GradientConfig):
    """A training of a model of upvotes."""

    reddit: CommentFiles = subsection(CommentFiles)
    cutoff: int = plain_key(0, "comments with a higher score were liked")
    network: UpvoteNetwork = subsection(UpvoteNetwork)
    vocab_size: int = positive(1024, "size of the vocabulary that is learned for a fresh tokenizer")
    max_len: int = plain_key(
        256,
        "tokens of a comment that the model reads, with the two around it",
        minimum=3,
        maximum=schema.LENGTH,
    )
    freeze: bool = plain_key(False, "learns the head alone")
    batch_size: int = sections.batch_size_key(32, "comments of a step")
    accumulate: int = sections.ACCUMULATE
    max_steps: int = positive(300, "number of optimiser steps of the training")
    evaluate_every: int = positive(100, "optimiser steps between evaluations")
    evaluation_batches: int = positive(
        64, "greatest number of batches of held-out comments in an evaluation"
    )
    optimizer: sections.DecayingOptimizer = subsection(
        sections.DecayingOptimizer, learning_rate=3e-4, final_fraction=0.1
    )
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    keep_checkpoints: int = sections.KEEP_CHECKPOINTS
    chunk_steps: int = sections.batch_size_key(4, "optimiser steps of one program")
