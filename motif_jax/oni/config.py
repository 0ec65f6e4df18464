"""The sections of a training whose reward is learned from labels while the agent plays."""

from __future__ import annotations

from typing import Any

from motif_jax.core import sections
from motif_jax.motif.annotation.config import (
    GOAL,
    OPTIONS,
    STORE_DIR,
    AnswerMode,
    AnswerSampling,
    LexiconFile,
    ModelJudge,
    OpenaiServer,
    PromptChoice,
)
from motif_jax.rl import choices
from motif_jax.rl.config import AgentReward
from motif_jax.rl.reward_keys import RANKING_THRESHOLD, RewardCheckpoint
from motif_jax.schema import (
    fraction,
    layer_size_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)

# Of keys of the section `reward`: the kinds that read them.
_CLASSIFICATION = ("reward.kind", ("classification",))
_RANKING = ("reward.kind", ("ranking",))
_NETWORKS = ("reward.kind", ("classification", "ranking"))


@section_class
class Classifier:
    """The reward of kind 'classification'."""

    threshold: float = fraction(
        0.5, "probabilities strictly above it are helpful", read_when=_CLASSIFICATION
    )
    dropout: float = fraction(
        0.1, "share of units left out while the classifier trains", read_when=_CLASSIFICATION
    )


@section_class
class RankedPairs:
    """Which messages the reward of kind 'ranking' compares."""

    every: int = positive(10, "ranking: pairs are drawn from every Nth step", read_when=_RANKING)
    distinct: bool = plain_key(
        False, "ranking: draws each distinct text alike, not each step", read_when=_RANKING
    )
    a_batch: int = positive(10, "ranking: pairs drawn with each batch", read_when=_RANKING)
    waiting: int = positive(
        200, "ranking: draws only while fewer questions than this wait", read_when=_RANKING
    )


@section_class
class OnlineTraining:
    """How a reward is trained while the agent plays."""

    batch_size: int = sections.batch_size_key(
        256, "number of labels in a batch", read_when=_NETWORKS
    )
    learning_rate: float = positive(1e-4, "learning rate of Adam", maximum=100.0)
    schedule: str = one_of(
        ("budget", "published"),
        "'budget': labels that arrive together call for steps_per_arrival steps, taken beside the learner, at most steps_per_update an "
        "update. 'published': all at once, and from 25,000 labels on one step an update",
    )
    steps_per_arrival: int = positive(
        32, "gradient steps for an update with new labels, see schedule", read_when=_NETWORKS
    )
    steps_per_update: int = positive(
        1, "greatest number of gradient steps an update, see schedule", read_when=_NETWORKS
    )
    target: str = one_of(
        ("label", "probability"),
        "learns labels, or the annotator's probabilities",
        read_when=_NETWORKS,
    )
    members: int = layer_size_key(1, "number of networks in the ensemble", read_when=_NETWORKS)


@section_class
class LearnedReward(AgentReward):
    """The reward that an agent learns from, and that is learned while it plays (ONI)."""

    kind: str = plain_key(
        "retrieval",
        "retrieval: the labels themselves. classification: a network that is trained on them. ranking: one that is trained on preferences "
        "between two messages. motif, table, any_text, bag_of_words: frozen, as in configs/train_agent.py. none: the task's reward alone",
    )
    intrinsic_coefficient: float = non_negative(
        0.4, "weight of the intrinsic reward; as published for retrieval on the score"
    )
    value: str = one_of(
        ("label", "probability"),
        "pays 1 for yes (above the threshold), or its probability",
        read_when=("reward.kind", ("retrieval", "classification")),
    )
    encoder: str = one_of(
        ("lt_cnn", "lt_cnn_small"),
        "encoder of the reward networks; the small one reads 128 bytes and is cheap",
    )
    classifier: Classifier = subsection(Classifier)
    # With reward.normalise=False rewards are raw, and there is no threshold.
    threshold: Any = plain_key(
        RANKING_THRESHOLD,
        "ranking: normalised rewards at or below it become 0",
        read_when=("reward.kind", (*choices.FROZEN_REWARDS, "ranking")),
    )
    decay: float = plain_key(
        1.0,
        "ranking: factor on the weight of earlier steps at each batch",
        above=0,
        maximum=1,
        read_when=_RANKING,
    )
    pairs: RankedPairs = subsection(RankedPairs)
    training: OnlineTraining = subsection(OnlineTraining)


@section_class
class OnlineAnnotator:
    """The annotator beside a training."""

    kind: str = plain_key(
        "lexicon",
        "openai: any server that speaks the protocol (launch/oni.sh starts one of vLLM), asked in the background. lexicon, model, or "
        "module:Class of your own: answers in the training's process, which waits for it unless the class has in_background",
    )
    options: str = OPTIONS
    goal: str = GOAL
    seed: int = plain_key(
        0, "seed of answers; runs that share a store find each other's where it is the same"
    )
    store_dir: str = plain_key(
        STORE_DIR.default, f"{STORE_DIR.help}; empty: answers/ in the run folder"
    )
    prompt: PromptChoice = subsection(PromptChoice)
    answer: AnswerMode = subsection(AnswerMode)
    sampling: AnswerSampling = subsection(AnswerSampling, top_k=-1, top_p=1.0)
    attempts: int = positive(
        2, "times that a question is asked at most, until an answer has a verdict"
    )
    wait_seconds: float = non_negative(
        600.0, "seconds that a start waits for a server that does not answer yet"
    )
    lexicon: LexiconFile = subsection(LexiconFile)
    model: ModelJudge = subsection(ModelJudge)
    # A question that gets no answer is asked again later, so that nothing else has to wait for it.
    openai: OpenaiServer = subsection(OpenaiServer, timeout_seconds=120.0)


@section_class
class Budget:
    """What the questions of a training may cost."""

    questions: int | None = positive(None, "greatest number of questions in all; None: no limit")
    tokens: int | None = positive(None, "greatest number of tokens in all; None: no limit")
    questions_per_million_steps: int | None = positive(
        None, "greatest number of questions per million steps of the environment; None: no limit"
    )
    tokens_per_million_steps: int | None = positive(
        None, "greatest number of tokens per million steps of the environment; None: no limit"
    )


@section_class
class Queue:
    """Questions that wait for the annotator beside a training."""

    size: int = positive(10_000, "questions that wait at most; the last in order are dropped")
    order: str = one_of(
        ("frequent", "newest", "uncertain"),
        "frequent: messages seen at most steps. newest: those seen last (published). uncertain: those that the reward is least sure of",
    )
    batch: int = positive(
        100,
        "entries of one call as published; compat.oni_requeue and training.schedule=published read it",
    )
    budget: Budget = subsection(Budget)


@section_class
class CheckedReward(RewardCheckpoint):
    """The reward whose labels are checked."""

    dir: str | None = plain_key(None, "run of configs/oni.py, of kind classification or retrieval")


@section_class
class CheckRewardConfig:
    """How a reward that was learned online is compared with its annotator."""

    seed: int = sections.SEED
    reward: CheckedReward = subsection(CheckedReward)
    evaluation: str = plain_key("", "an evaluation whose messages are checked too; empty: none")
    questions: int = positive(
        1000, "questions to the annotator at most, about the most frequent messages"
    )
    minimum: float | None = fraction(None, "share of messages on which they must agree; None: any")
