"""The configs of GLAM: its networks, DRRN's Q-learning, probes, players of levels, and behavioural
cloning.
"""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.compat import Compat, quirk
from motif_jax.core.training.config import GradientConfig
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.play.config import GREEDY, LANES, WORKERS, AgentCheckpoint
from motif_jax.rl.algorithms.config import Ppo
from motif_jax.rl.config import PlayedTask
from motif_jax.schema import (
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


@section_class
class LanguagePolicy:
    """A language model as an agent."""

    kind: str = one_of(("language",), "kind of policy, a language model that scores actions")
    model: str = plain_key("", "a folder, or a name of the Hugging Face hub")
    pretrained: bool = plain_key(
        True,
        "starts from the weights in the model's folder; False: fresh weights of the model's shapes",
    )
    keep_embedding: bool = plain_key(
        False, "takes the folder's embeddings all the same, with fresh weights"
    )
    policy: str = one_of(
        ("score", "actions"), "scores the actions' words, or has a head on the value's state"
    )
    score: str = one_of(
        ("log_probability", "raw_logit", "scaled_probability"),
        "score of an action by its words: the sum of their tokens' log-probabilities, or of their logits, or the product of their tokens' "
        "probabilities over the greatest of all actions', which are logits in their turn: the policy is their softmax",
        read_when=(".policy", ("score",)),
    )
    by_length: bool = plain_key(
        False, "divides an action's sum by its number of tokens", read_when=(".policy", ("score",))
    )
    special_tokens: str = one_of(
        ("prompt", "nowhere"),
        "where the tokens that the tokenizer adds to a text (such as T5's end token) stand: around the prompt, as in pretraining, or "
        "nowhere, as in the released code",
    )
    # Of the probability of SmolLM2-135M-Instruct .15 lies on BabyAI-Text's six actions in plain
    # text, .007 in turns; of Qwen2.5-Coder-0.5B's .58 and .013: an answer begins in its own words,
    # where "Action 0:" goes on with an action.
    chat: str = one_of(
        ("never", "auto", "always"),
        "whether a prompt is a turn of the user by the model's own chat template, and the action the beginning of the assistant's: 'auto' where a "
        "decoder that scores words has a template, and prompt and action are tokenised together; 'never': plain text",
    )
    head_widths: tuple[int, ...] = layer_size_key(
        (1024, 1024), "sizes of the hidden layers of the value's and the action's heads"
    )
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT


@section_class
class DrrnPolicy:
    """DRRN (He et al. 2016) as an agent, with the published sizes."""

    kind: str = one_of(("drrn",), "kind of policy, the DRRN baseline")
    tokenizer: str = plain_key("", "a tokenizer.json, or a folder with one")
    embedding: int = layer_size_key(128, "width of a token's")
    hidden_size: int = layer_size_key(128, "size of both encoders and of the layer before Q")
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )


@section_class
class QLearning:
    """DRRN's Q-learning (glam/drrn_update.py)."""

    name: str = plain_key(
        "drrn", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/algorithm.py)"
    )
    gamma: float = fraction(0.9, "discount of a step")
    epochs: int = positive(1, "steps of learning after each batch, each on its own draw")
    # All of the published run.
    replay_steps: int = positive(
        1_500_000, "steps remembered, each in 2.5 bytes x network.prompt_tokens"
    )
    replay_draw: int = positive(64, "steps of a draw, of all devices together")
    positive_reward: bool = plain_key(True, "negative rewards of the task count as 0, as published")


@section_class
class ProbeQuestions:
    """What a language agent is asked before updates."""

    prompts: str = plain_key(
        "own",
        "fixed situations in which the agent is asked what it would do, before every update: 'own' (11 built-in ones in English, those with "
        "no more observations than its prompts), '' for none, or a JSON file like configs/probes/babyai_text.json",
    )
    clauses_every: int = non_negative(
        50, "updates between probes that leave out each clause in turn; 0: never"
    )


@section_class
class LevelOptionKeys:
    """Options of the levels of BabyAI-Text."""

    kind: str = plain_key("", "kind of task in the Mixed levels; '' draws it for each episode")
    language: str = plain_key("", "'english', 'french', or '' for the level's own")
    observations: int = positive(
        3, "number of observations in a prompt, with the actions between them"
    )
    actions: tuple[str, ...] = plain_key(
        ACTIONS, "names of the actions; those beyond the sixth do nothing"
    )
    distractors: int | None = non_negative(
        None, "objects without a use (published: 4, 8, 16); None: the level's"
    )
    change: str = plain_key(
        "", "change of the words of prompts (motif_jax/envs/babyai_text/changes.py); '' for none"
    )


# The sections `environment` of the commands with levels of BabyAI-Text. `PlayedTask` reads them.
@section_class
class PlayedLevelKeys:
    """The level that an agent plays, whose options are those of its training."""

    # An agent keeps the options of its training; on another level without kind and distractors.
    name: str | None = plain_key(
        None, "level to play; None: the agent's, or BabyAI-MixedTrainLocal-v0"
    )
    max_episode_steps: int = positive(5000, "cuts episodes off before the level's own limit")
    babyai_text: LevelOptionKeys = subsection(LevelOptionKeys)


@section_class
class TrainedLevelKeys(PlayedLevelKeys):
    """The level of a training."""

    name: str = plain_key("BabyAI-MixedTrainLocal-v0", "a level of BabyAI-Text")


@section_class
class ClonedLevelKeys(PlayedLevelKeys):
    """The level of an agent that learned from trajectories."""

    name: str | None = plain_key(None, "where the agent plays afterwards")


@section_class
class LanguageTraining:
    """What a training of a language agent has besides the keys of `AgentConfig`, or with other
    defaults.
    """

    seed: int = sections.seed(1)
    probes: ProbeQuestions = subsection(ProbeQuestions)
    tests: str = plain_key(
        "all",
        "tests of generalisation (docs/glam.md) whose prompts and actions are tried before the training; a named test that would be refused "
        "is an error, one of 'all' is only reported; '': tries the training's own prompts alone",
    )
    published_files: bool = plain_key(
        True, "also writes log.csv and distrib.csv with the published columns"
    )
    network: LanguagePolicy = subsection(LanguagePolicy)
    lora: sections.LoraOnBase = subsection(sections.LoraOnBase, rank=16, alpha=32.0)
    sharding: sections.Sharding = subsection(sections.Sharding)
    algorithm: Ppo = subsection(Ppo)


@section_class
class PublishedArrays:
    """Published trajectories."""

    dir: str | None = plain_key(
        None,
        "folder of published arrays in place of trajectories: DIR/NAME_prompts_NUMBER.npy, NAME_actions_NUMBER.npy",
    )
    name: str = plain_key("trajectories", "NAME of the published arrays, see dir")
    number: int = non_negative(13, "NUMBER of the published arrays, see dir")


@section_class
class CloningCompat(Compat):
    """Quirks of an agent, and of the published behavioural cloning."""

    bc_unshuffled: bool = quirk("pairs are learned from in their order")
    bc_pad_in_loss: bool = quirk("pads up to three tokens count in the loss")


@section_class
class CloningConfig(GradientConfig):
    """A training of a language agent on trajectories."""

    seed: int = sections.SEED
    trajectories: str | None = plain_key(None, "folder of collect_trajectories to learn from")
    # Arrays of Python objects are refused.
    published: PublishedArrays = subsection(PublishedArrays)
    train_pairs: int | None = positive(None, "the first ones (published: 400,000); None: 95 %")
    loss: str = one_of(
        ("tokens", "candidates"),
        "'tokens': cross-entropy of each token of the action's words and of the end token after them, as published. 'candidates': "
        "cross-entropy of the action among all actions, as PPO acts",
    )
    batch_size: int = sections.batch_size_key(64, "steps of a batch")
    accumulate: int = sections.ACCUMULATE
    epochs: int = positive(1, "passes over the pairs")
    evaluate_every: int = positive(250, "optimiser steps between evaluations")
    evaluation_batches: int = positive(
        64, "greatest number of batches of held-out steps in an evaluation"
    )
    chunk_steps: int = sections.CHUNK_STEPS
    optimizer: sections.Optimizer = subsection(
        sections.Optimizer,
        learning_rate=5e-4,
        schedule="cosine",
        warmup_steps=None,
        max_gradient_norm=0.0,
    )
    # What a language agent is made of.
    network: LanguagePolicy = subsection(LanguagePolicy)
    lora: sections.LoraOnBase = subsection(sections.LoraOnBase, rank=16, alpha=32.0)
    # Of our trajectories name, options and the wording of French goals (compat.glam_french_goal)
    # are theirs.
    environment: PlayedTask = PlayedTask()
    keep_checkpoints: int = positive(
        3, "number of newest evaluations whose checkpoints stay, besides the best"
    )
    profile: sections.Profile = subsection(sections.Profile, steps=5)
    compat: CloningCompat = CloningCompat()

    @property
    def source(self) -> str:
        """The place of the trajectories."""
        return self.trajectories or self.published.dir or ""


@section_class
class LevelPolicy:
    """Who plays BabyAI-Text; an agent keeps the environment's options and the network of its
    training.
    """

    seed: int = sections.SEED
    policy: str = ""
    agent: AgentCheckpoint = subsection(AgentCheckpoint)
    greedy: bool = GREEDY
    environment: PlayedTask = PlayedTask()
    network: LanguagePolicy = LanguagePolicy()


@section_class
class CollectTrajectoriesConfig(LevelPolicy):
    """A collection of trajectories of BabyAI-Text."""

    policy: str = plain_key("bot", "policy that plays, named as in configs/test_language_agent.py")
    steps: int = positive(400_000, "plays whole episodes until it has this many")
    successes: bool = plain_key(False, "only episodes with success; 1,000 without one end the run")
    # 4 bytes a letter.
    published: bool = plain_key(
        False, "also writes {bot_,}trajectories_{prompts,actions}_1.npy and status.json"
    )
    workers: int = WORKERS
    lanes: int = LANES


@section_class
class GeneralisationConfig(LevelPolicy):
    """Tests with words, actions, objects or tasks that a training did not have."""

    policy: str = plain_key(
        "random",
        "'random'; 'bot'; 'zero_shot' (network.model as it is, before any training); the folder of an agent run (language, cloned, DRRN, "
        "symbolic); or module:Class of your own (rl/actors/policies.py)",
    )
    tests: str = plain_key(
        "all",
        "names with commas between, or levels; 'all': every test that applies to the policy (docs/glam.md lists them) and whose prompts "
        "fit it. The first is always no_modification_test, which the others are compared with",
    )
    action_names: tuple[str, ...] = plain_key(
        (),
        "names of the actions in the test action_names, as many as there are actions; (): rotate left, move ahead, ...",
    )
    episodes: int = positive(1000, "number of episodes of each test")
    prompt_tokens: int | None = length_key(
        None,
        "longest prompt in tokens; None: the training's, twice as many where words may take more",
    )
    workers: int = WORKERS
    lanes: int = LANES


@section_class
class ProbedSituations:
    """The situations in which checkpoints are asked."""

    prompts: str = plain_key(
        "own", "'own' (11 built-in ones), or a JSON file like configs/probes/babyai_text.json"
    )


@section_class
class ProbeAgentConfig:
    """What checkpoints of a language agent would do in fixed situations."""

    policy: str = plain_key("", "folder of a run of train_language_agent")
    checkpoint: str = plain_key(
        "all", "checkpoint of the agent: 'all', 'latest', 'best', or a step"
    )
    probes: ProbedSituations = subsection(ProbedSituations)
    must_be_right: bool = plain_key(
        False,
        "exit code 1 unless the newest checkpoint's most likely action is the one that the file calls `right`, in all probes that have one",
    )
    published_files: bool = plain_key(True, "also writes distrib.csv, one row per checkpoint")
