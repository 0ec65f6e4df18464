"""The config of `evaluate_text`: what is evaluated, and the keys of each kind of evaluation."""

from __future__ import annotations

import dataclasses

from motif_jax.core import sections
from motif_jax.ilql.agent.config import Decode
from motif_jax.play.config import THREADS
from motif_jax.schema import non_negative, one_of, plain_key, positive, section_class, subsection

_EPISODES = ("kind", ("episodes",))
_RANK = ("kind", ("rank",))
_PLAY = ("kind", ("play",))
# Somebody speaks in a task.
_SPEAKS = ("kind", ("episodes", "play"))


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
    scale: float = plain_key(1.0, "factor on the values of the file", read_when=_EPISODES)
    shift: float = plain_key(0.0, "amount that is added to the scaled values", read_when=_EPISODES)


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
