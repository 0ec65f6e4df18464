"""The config of trainings on dialogues (docs/ilql.md)."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.training.config import TextDatasetConfig
from motif_jax.schema import LENGTH, count, fraction, key, natural, one_of, part, positive, settings


@settings
class PolicyWeights:
    """What the policy learns most from."""

    beta: float = natural(0.0, "an action has weight exp(beta A); see exponential")
    exponential: bool = key(True, "False: an action has weight beta where A > 0, else 1 - beta")
    most_weight: float | None = positive(None, "weights are clipped to it")
    context_weight: float = natural(0.0, "weight of tokens that the agent did not say")


@settings
class TextMethod:
    """The method of a training on dialogues."""

    name: str = key("ilql", "of METHOD above, or module:Class (docs/ilql.md)")
    discount: float = fraction(0.99, "from one action (a token; of ilql_utterance an utterance) to the next")
    expectile: float = key(0.7, "expectile of the target Q that V estimates; 0.5: the mean", above=0, below=1)
    polyak: float = fraction(0.005, "share by which targets move to the Qs after every step")
    copy_every: int | None = positive(None, "steps between whole copies to the targets; None: no copies")
    double_q: bool = key(True, "two Qs, of which targets take the smaller one")
    separate_policy: bool = key(True, "the policy has a trunk of its own; else that of the values")
    separate_target: bool = key(True, "the target Qs have a trunk of their own")
    advanced_mlp: bool = key(False, "the other form of heads: a residual layer with dropout")
    detach_v: bool = key(False, "no gradient of V reaches the trunk")
    detach_q: bool = key(False, "no gradient of Q reaches the trunk")
    detach_policy: bool = key(False, "no gradient of the policy reaches the trunk")
    q_min: float | None = key(None, "target Qs are at least this")
    q_max: float | None = key(None, "target Qs are at most this")
    monte_carlo: bool = key(False, "V estimates the return that followed instead of the target Q")
    cql_temperature: float = positive(1.0, "of the conservative term's softmax")
    margin: float = natural(0.0, "of the margin term")
    reward_scale: float = positive(1.0, "rewards are divided by it")
    policy: PolicyWeights = part(PolicyWeights)


@settings
class CandidateTexts:
    """Texts among which method chai chooses."""

    count: int = positive(5, "of method chai: texts of the policy in each state of the data")
    max_tokens: int = positive(6, "of each", most=LENGTH)
    together: int = positive(4, "states whose candidates are written in one program")
    temperature: float = key(1.0, "of their draws")
    top_k: int = key(0, "tokens that may be drawn; 0: all")
    top_p: float = key(1.0, "probability of the tokens that may be drawn")
    cache_mebibytes: int = positive(1024, "kept in candidates/ of the run; the oldest are dropped")
    folder: str | None = key(None, "keeps candidates here, for several runs of one policy")


@settings
class TextPpo:
    """Method ppo."""

    epochs: int = positive(4, "of method ppo: passes over the episodes of a step, batch_size of them")
    minibatches: int = positive(4, "of a pass, each one optimiser step in `accumulate` parts")
    clip_ratio: float = positive(0.2, "of the surrogate: [0.8, 1.2]")
    clip_value: float = positive(0.2, "of the value's change, in units of the reward")
    value_coefficient: float = natural(0.1, "of the value's loss")
    entropy_coefficient: float = natural(0.0, "of the entropy")
    gae_lambda: float = fraction(0.95, "of generalised advantage estimation")
    normalise_advantage: bool = key(True, "subtracts the mean of a step's tokens, divides by their deviation")
    kl: sections.Kl = part(sections.Kl)


@settings
class HeldOutDialogues:
    """Dialogues to measure with."""

    share: float = key(
        0.02,
        "of the data (of groups) on which losses are measured: 1 of n where it is 1 / n",
        above=0,
        most=0.5,
    )
    data: str | None = key(None, "other data in place of a share; of a stream they are drawn beforehand")


@settings
class DialogueFilter:
    """Which dialogues are learned from."""

    top: float = key(1.0, "%BC: only this best part of the data, by return, is learned from", above=0, most=1)
    bottom: float = key(1.0, "or the worst part", above=0, most=1)
    cutoff: float | None = key(None, "or those with a return of at least this, without token_reward")


@settings
class LossWeights:
    """Weights of the loss terms."""

    q: float = natural(1.0, "weight of Q's term")
    v: float = natural(1.0, "weight of V's term")
    policy: float = natural(1.0, "weight of the policy's cross-entropy")
    cql: float = natural(0.0, "weight of the conservative term")
    margin: float = natural(0.0, "weight of the margin term")


@settings
class TextTrunks(sections.ModelSizes):
    """The trunks of an agent that writes."""

    checkpoint: str | None = key(
        None, "trunks begin as this folder or hub model; None: fresh, of these sizes"
    )
    max_length: int = count(1024, "positions of the table")


@settings
class InitialParameters:
    """Runs that an agent begins as."""

    policy: str | None = key(None, "a run that the policy's parameters are taken from")
    value: str | None = key(None, "a run that the values' parameters are taken from")


@settings
class EvaluationGames:
    """Episodes of evaluations."""

    episodes: int = natural(16, "played at every evaluation, the same each time; 0: none")
    decode: sections.Decode = part(sections.Decode)


@settings
class TextConfig(TextDatasetConfig):
    """A training of an agent that writes."""

    task: str = key("wordle", "a text task, or module:Class (docs/ilql.md)")
    options: str = key("", 'of the task, as JSON: {"num_words": 100}; data of collect_text bring theirs')
    data: str | None = key(
        None, "dialogues (.jsonl, .parquet) or their folder; None: drawn as by collect_text"
    )
    kind: str = key("games", "of dialogues that are drawn")
    policy: str = key("mixture(0.5, optimal, repeat(optimal))", "of dialogues that are drawn")
    held_out: HeldOutDialogues = part(HeldOutDialogues)
    filter: DialogueFilter = part(DialogueFilter)
    token_reward: sections.TokenReward = part(sections.TokenReward)
    method: TextMethod = part(TextMethod)
    loss: LossWeights = part(LossWeights)
    candidates: CandidateTexts = part(CandidateTexts)
    ppo: TextPpo = part(TextPpo)
    network: TextTrunks = part(TextTrunks)
    initial: InitialParameters = part(InitialParameters)
    max_len: int | None = count(None, "tokens of a dialogue that are kept; None: what the model has room for")
    length_buckets: bool = key(True, "batches dialogues of similar length; False: pads to the longest")
    batch_size: int = sections.batch(64, "dialogues of a step")
    accumulate: int = sections.ACCUMULATE
    average: str = one_of(
        ("batch", "micro_batch"), "over a step's actions, or over micro-batches (published)"
    )
    max_steps: int = positive(10_000, "of the training")
    evaluate_every: int = sections.EVALUATE_EVERY
    evaluation_batches: int = positive(16, "of held-out dialogues, at most")
    games: EvaluationGames = part(EvaluationGames)
    optimizer: sections.DecayingOptimizer = part(sections.DecayingOptimizer, final_fraction=0.1)
    dropout: float = sections.DROPOUT
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT
    logits_chunk: int | None = sections.LOGITS_CHUNK
    lora: sections.Lora = part(sections.Lora)
    log_every_seconds: float = positive(20.0, "between rows of Q, V and advantages (docs/metrics.md)")
