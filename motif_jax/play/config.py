"""The configs of stages that play episodes and show them, and keys that other stages share."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.compat import Compat
from motif_jax.core.config import default_workers
from motif_jax.rl.reward_keys import Scoring
from motif_jax.schema import (
    layer_size_key,
    length_key,
    non_negative,
    plain_key,
    positive,
    section_class,
    subsection,
)

# Keys of stages that play episodes.
WORKERS = positive(default_workers(), "number of processes that play")
LANES = length_key(
    32, "episodes of an agent at a time; the network sees lanes / 2 at once", multiple_of=2
)
GREEDY = plain_key(False, "takes the most likely action instead of drawing one (networks only)")
CHECKPOINT = plain_key(
    "latest", "'latest', 'best' (by mean return in training), or a step; 0: before it"
)
# Episodes of an evaluation that `visualize` shows.
EPISODES = "best,worst"
THREADS = layer_size_key(
    1, "environments that answer at a time; take more where they wait for a server"
)


@section_class
class Forms:
    """Files that show episodes."""

    gif: bool = plain_key(False, "writes a movie")
    frames_per_second: float = positive(10.0, "frames per second of movies")
    start: int = non_negative(0, "step at which movies start; they show steps [start, stop)")
    stop: int | None = positive(None, "step at which movies end, see start; None: the end")


@section_class
class PlayedEnvironment:
    """Where episodes are played."""

    name: str | None = plain_key(
        None, "environment to play, named as in train_agent; None: the agent's, or NetHackScore-v1"
    )
    text: str | None = plain_key(
        None, "text of a step of gym:ID, as in train_agent; None: the agent's, or the default"
    )
    text_bytes: int | None = positive(
        None,
        "greatest number of bytes of a text of gym:ID, as in train_agent; None: the agent's, or the default",
    )
    modules: str | None = plain_key(
        None,
        "modules that register environments of gym:ID, as in train_agent; None: the agent's, or the default",
    )
    kwargs: str | None = plain_key(
        None,
        "arguments of the environment as a JSON object, as in train_agent; {} for none; None: the agent's, or none",
    )
    wrappers: str | None = plain_key(
        None, "wrappers around gym:ID, as in train_agent; '' for none; None: the agent's, or none"
    )
    action_mask: str | None = plain_key(
        None,
        "mask of the actions of gym:ID, as in train_agent; '' for none; None: the agent's, or none",
    )
    change: str | None = plain_key(
        None, "change of BabyAI-Text's prompts ('other_episode'; docs/glam.md); None: the agent's"
    )
    max_episode_steps: int | None = positive(
        None,
        "longest episode in steps; None: the agent's, or without an agent 5,000, as in trainings, and that of a module:Class; "
        "a shorter limit of the environment's own holds in any case",
    )


@section_class
class AgentCheckpoint:
    """Which checkpoint of an agent plays."""

    checkpoint: str = CHECKPOINT


@section_class
class PlayedAgent(AgentCheckpoint):
    """An agent, and which checkpoint of it plays."""

    dir: str | None = plain_key(
        None, "run folder of train_agent; the random policy plays in its environment"
    )


@section_class
class PlayedPolicy:
    """Which policy plays where, and what rates it."""

    seed: int = sections.SEED
    policy: str = plain_key(
        "random",
        "player: 'random'; 'fixed', which draws actions by the same shares at every step, fitted first to the greatest return; "
        "'bot', where the environment has a scripted player (BabyAI-Text); 'agent', that of agent.dir; the folder of an agent "
        "run; or module:Class of your own (rl/actors/policies.py)",
    )
    agent: PlayedAgent = subsection(PlayedAgent)
    greedy: bool = GREEDY
    environment: PlayedEnvironment = subsection(PlayedEnvironment)
    reward: Scoring = subsection(Scoring)
    # For an environment without an agent; an agent keeps the switches of its training.
    compat: Compat = Compat()
    bot_agreement: bool = False


@section_class
class EvaluateConfig(PlayedPolicy):
    """An evaluation of a policy."""

    bot_agreement: bool = plain_key(
        False, "measures at how many steps the scripted player would have done the same"
    )
    episodes: int = positive(100, "number of episodes to play")
    workers: int = WORKERS
    lanes: int = LANES
    record_every: int = non_negative(
        0, "every Nth episode leaves a recording and a player; 0: none"
    )
    show_best: int = non_negative(
        0, "also this many best and worst episodes, by intrinsic return, else return"
    )
    forms: Forms = subsection(Forms)


@section_class
class CommentingAgent:
    """The agent that comments on recorded episodes."""

    dir: str | None = plain_key(
        None,
        "whose value and action probabilities are shown; None: the evaluation's agent; '': none",
    )
    checkpoint: str | None = plain_key(
        None,
        "'latest', 'best' (by mean return in training), or a step; 0: before it; None: the evaluation's, or the latest of dir",
    )


@section_class
class RecordedEpisodes:
    """Recorded episodes, which are shown in place of those that a policy plays now."""

    evaluation: str | None = plain_key(None, "folder of an evaluation")
    episodes: str = plain_key(
        EPISODES,
        "episodes of the evaluation: indices, best, worst (by intrinsic return, else return), or all",
        read_when=(".evaluation", ()),
    )
    files: str = plain_key("", "recordings (.json) or folders of them, with commas between")
    agent: CommentingAgent = subsection(CommentingAgent)


@section_class
class VisualizeConfig(PlayedPolicy):
    """Episodes that are watched."""

    recorded: RecordedEpisodes = subsection(RecordedEpisodes)
    episodes: int = positive(1, "number of episodes that the policy plays")
    live: bool = plain_key(True, "shows them, where there is a terminal")
    seconds_per_step: float = non_negative(
        0.125, "seconds between steps at the start; 0: as fast as possible"
    )
    forms: Forms = subsection(Forms)
