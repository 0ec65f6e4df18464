"""The configs of stages that play episodes."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.compat import Compat
from motif_jax.core.config import available_cores
from motif_jax.play.keys import CHECKPOINT, GREEDY, LANES
from motif_jax.rl.reward_keys import Scoring
from motif_jax.schema import plain_key, positive, section_class, subsection


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
    action_bins: int | None = plain_key(
        None,
        "values of each continuous number of an action of gym:ID, as in train_agent; None: the agent's, or 0, as they are",
    )
    action_mask: str | None = plain_key(
        None, "mask of the actions of gym:ID, as in train_agent; '' for none; None: the agent's, or none"
    )
    change: str | None = plain_key(
        None, "change of BabyAI-Text's prompts ('other_episode'; docs/glam.md); None: the agent's"
    )
    max_episode_steps: int | None = positive(
        None, "longest episode in steps; None: the agent's, or the environment's own"
    )


@section_class
class AgentCheckpoint:
    """Which checkpoint of an agent plays."""

    checkpoint: str = CHECKPOINT


@section_class
class PlayedAgent(AgentCheckpoint):
    """An agent, and which checkpoint of it plays."""

    dir: str | None = plain_key(None, "run folder of train_agent; the random policy plays in its environment")


@section_class
class PlayedPolicy:
    """Which policy plays where, and what rates it."""

    seed: int = sections.SEED
    policy: str = plain_key(
        "random",
        "player: 'random'; 'fixed', which draws actions by the same shares at every step, fitted first to the greatest return; "
        "'bot', where the environment has a scripted player (BabyAI-Text); 'agent', that of agent.dir; the folder of an agent "
        "run; or module:Class of your own (play/policies.py)",
    )
    agent: PlayedAgent = subsection(PlayedAgent)
    greedy: bool = GREEDY
    environment: PlayedEnvironment = subsection(PlayedEnvironment)
    reward: Scoring = subsection(Scoring)
    # For an environment without an agent; an agent keeps the switches of its training.
    compat: Compat = Compat()
    bot_agreement: bool = False


@section_class
class CollectedPairs:
    """How many pairs are collected, and which."""

    num_pairs: int = positive(500_000, "number of pairs of the dataset")
    drop_equal_captions: bool = plain_key(False, "leaves out pairs with two equal captions, which are ties")
    lanes: int = LANES
    # The process that collects only hands out episodes, so all cores play.
    workers: int = positive(available_cores(), "number of processes that play")
