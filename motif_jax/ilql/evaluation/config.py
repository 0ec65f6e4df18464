"""The configs of stages in which an agent of text speaks."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.ilql.agent.config import Decode
from motif_jax.play.keys import CONFIDENCE, RESAMPLES, THREADS
from motif_jax.schema import non_negative, one_of, plain_key, positive, section_class, subsection


@section_class
class EvaluatedTokenReward:
    """Rewards of the tokens of actions, in an evaluation."""

    constant: float | None = plain_key(
        None,
        "reward of every token of an action; None, without a file: the rewards that the agent was trained with, or 0 without an agent",
    )
    file: str | None = plain_key(
        None, "JSON file {token: value} of rewards, in place of the constant"
    )
    scale: float = plain_key(1.0, "factor on the values of the file")
    shift: float = plain_key(0.0, "amount that is added to the scaled values")


@section_class
class TextSpeaker:
    """Who speaks in which task, and how."""

    seed: int = sections.SEED
    agent: str | None = plain_key(None, "a run folder of train_text")
    policy: str | None = plain_key(None, "a policy of the task in its place, such as 'optimal'")
    task: str | None = plain_key(None, "task to play; None: the agent's")
    options: str = plain_key(
        "", "options of the task as JSON, over those that the agent was trained with"
    )
    data: str | None = None
    url: str | None = None
    decode: Decode = subsection(Decode)
    token_reward: EvaluatedTokenReward | None = None  # None: nothing counts them
    dtype: str = sections.DTYPE


@section_class
class EvaluatedSpeaker(TextSpeaker):
    """Who is evaluated, in which task or on which dialogues."""

    agent: str | None = plain_key(
        None,
        "a run of train_text; or the Hugging Face folder of a decoder whose tokenizer has the delimiters, such as export:text_agent writes: a "
        "policy without values, which needs config.task and decode.max_tokens",
    )
    policy: str | None = plain_key(
        None, "plays in the agent's place, such as 'optimal'; with an agent, in its task"
    )
    task: str | None = plain_key(
        None, "task to play: a text task or module:Class (docs/ilql.md); None: the agent's"
    )
    options: str = plain_key(
        "",
        'options of the task as JSON, {"num_words": 100}; over those that the agent was trained with',
    )
    data: str | None = plain_key(
        None,
        "evaluates these recorded dialogues instead of playing (.jsonl, .parquet or a folder with one); None: plays, or, for the task "
        "`dialogues` without an environment, takes those that the training held out",
    )
    url: str | None = plain_key(
        None, "address of the task's server, in place of that of options; may change on resuming"
    )
    token_reward: EvaluatedTokenReward = subsection(EvaluatedTokenReward)


@section_class
class EvaluateTextConfig(EvaluatedSpeaker):
    """An evaluation of who speaks in a text task."""

    episodes: int = positive(1024, "number of episodes to play")
    lanes: int = positive(1024, "played at a time, in one program", maximum=1 << 20)
    threads: int = THREADS
    show: int = non_negative(8, "episodes on the page token by token")
    resamples: int = RESAMPLES
    confidence: float = CONFIDENCE
    published_log: bool = plain_key(False, "writes eval_log.pkl as the published evaluations do")


@section_class
class PlayTextConfig(TextSpeaker):
    """Games of a text task that a person plays."""

    decode: Decode = subsection(Decode, kind="greedy", advantage_clip=0.0)
    mode: str = one_of(
        ("with", "against", "answer"),
        "'with': each turn it proposes what to say, and you take it (Enter) or say something else; 'against': you play, then it plays from the "
        "same seed; 'answer': you are the other side, and it speaks to you",
    )
    games: int = positive(1, "number of games to play")


@section_class
class RankTextConfig:
    """The texts that agents' values rank highest and lowest."""

    agents: str = plain_key(
        "", "runs of train_text with commas between; their tokens must have values"
    )
    data: str | None = plain_key(
        None, "a folder of collect_text, or a file of dialogues (.parquet)"
    )
    dialogues: int = positive(
        10_000, "number of dialogues to read, from the start of the data; groups are never split"
    )
    n_gram: int = positive(3, "tokens of an n-gram")
    shown: int = positive(
        20, "number of texts to show in the list of the greatest and in that of the least"
    )
    least_count: int = positive(2, "the lists leave out what was said less often")
    tokens: int = positive(6, "last tokens of an action for which ranking accuracy is measured")
