"""The configs of trainings of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core import entry_points, sections
from motif_jax.core.config import default_workers
from motif_jax.motif.annotation.config import OnlineAnnotator, Queue
from motif_jax.rl.policy_config import Appo, DrrnPolicy, GameNetwork, LanguagePolicy, Ppo, QLearning
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
class PlayedTask:
    """An environment; None names that of an agent. A task's own options, such as `recall` and `babyai_text`, are mappings."""

    name: str | None = None
    text: str = ""
    text_bytes: int = 256
    modules: str = ""
    max_episode_steps: int = positive(5000, "longest episode in steps; longer ones are cut off")
    last_text: bool | None = sections.LAST_TEXT
    recall: Mapping[str, Any] | None = None
    babyai_text: Mapping[str, Any] | None = None


@section_class
class TrainedTask(PlayedTask):
    """The environment of a training, which has a name."""

    name: str = ""


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
class AgentReward(sections.Scoring):
    """The reward that an agent learns from."""

    kind: str = plain_key(
        "motif",
        "'motif': frozen, of the run in `dir`. 'table': the numbers of a file. 'bag_of_words': how much a message is like the goal. Or "
        "module:Class of your own (motif_jax/rl/intrinsic.py). docs/rewards.md",
    )
    dir: str | None = plain_key(
        None, "run of train_reward, file of export_reward, or hf://OWNER/NAME; None: none"
    )
    table: str | None = plain_key(
        None, "rewards of kind table: JSON {text: number}, or a run of configs/oni.py; others get 0"
    )
    vectors: str | None = plain_key(
        None, "word vectors of fastText, for kind bag_of_words; None: hashed letters"
    )
    goal: str = plain_key(
        "defaultgoal", "goal of kind bag_of_words: one of the prompts' goals, or a sentence"
    )
    similarity: float = plain_key(-0.5, "cosine above which kind bag_of_words pays a message")
    intrinsic_coefficient: float = non_negative(0.1, "weight of the intrinsic reward")
    extrinsic_coefficient: float | None = non_negative(
        None, "weight of the reward of the task; None: 0.1 for the score tasks, 10 for the others"
    )
    extrinsic_scale: float = positive(0.1, "factor on the reward of the task")
    extrinsic_clip: float = positive(
        10.0, "clips the task's reward, after the scale and before the coefficient"
    )


@section_class
class Classifier:
    """The reward of kind 'classification'."""

    threshold: float = fraction(0.5, "probabilities strictly above it are helpful")
    dropout: float = fraction(0.1, "share of units left out while the classifier trains")


@section_class
class RankedPairs:
    """Which messages the reward of kind 'ranking' compares."""

    every: int = positive(10, "ranking: pairs are drawn from every Nth step")
    distinct: bool = plain_key(False, "ranking: draws each distinct text alike, not each step")
    a_batch: int = positive(10, "ranking: pairs drawn with each batch")
    waiting: int = positive(200, "ranking: draws only while fewer questions than this wait")


@section_class
class OnlineTraining:
    """How a reward is trained while the agent plays."""

    batch_size: int = sections.batch_size_key(256, "number of labels in a batch")
    learning_rate: float = positive(1e-4, "learning rate of Adam", maximum=100.0)
    schedule: str = one_of(
        ("budget", "published"),
        "'budget': new labels call for steps_per_arrival steps, taken beside the learner, at most steps_per_update an "
        "update. 'published': all at once, and from 25,000 labels on one step an update",
    )
    steps_per_arrival: int = positive(32, "gradient steps for each new label, see schedule")
    steps_per_update: int = positive(1, "greatest number of gradient steps an update, see schedule")
    target: str = one_of(("label", "probability"), "learns labels, or the annotator's probabilities")
    members: int = layer_size_key(1, "number of networks in the ensemble")
    deviations: float = non_negative(
        0.0, "standard deviations of the members that are subtracted from their mean"
    )
    device: str = plain_key("auto", "number of the device that trains; 'auto': the one that computes rewards")


@section_class
class LearnedReward(AgentReward):
    """The reward that an agent learns from, and that is learned while it plays (ONI)."""

    kind: str = plain_key(
        "retrieval",
        "retrieval: the labels themselves. classification: a network that is trained on them. ranking: one that is trained on preferences "
        "between two messages. motif, table, bag_of_words: frozen, as in configs/train_agent.py. none: the task's reward alone",
    )
    intrinsic_coefficient: float = non_negative(
        0.4, "weight of the intrinsic reward; as published for retrieval on the score"
    )
    value: str = one_of(("label", "probability"), "pays 1 for yes (above the threshold), or its probability")
    encoder: str = one_of(
        ("lt_cnn", "lt_cnn_small"),
        "encoder of the reward networks; the small one reads 128 bytes and is cheap",
    )
    classifier: Classifier = subsection(Classifier)
    # With reward.normalise=False rewards are raw, and there is no threshold.
    threshold: Any = plain_key(-0.5, "ranking: normalised rewards at or below it become 0")
    decay: float = plain_key(
        1.0, "ranking: factor on the weight of earlier steps at each batch", above=0, maximum=1
    )
    pairs: RankedPairs = subsection(RankedPairs)
    training: OnlineTraining = subsection(OnlineTraining)


@section_class
class Actors:
    """The processes that play."""

    workers: int = positive(default_workers(), "processes that play, on every host")
    envs_per_worker: int = length_key(20, "environments of each process")
    start_method: str = one_of(("auto", "fork", "exec"), "'exec': start each process by itself, more slowly")
    cores: str = plain_key("auto", "one a worker: 'auto' (claimed by no other run), '' for any, or '2,3,5'")
    groups_per_worker: int | None = positive(
        None, "one is stepped while others wait for their actions; None: 4 on one host with a GPU, else 2"
    )
    slots_per_group: int | None = positive(None, "rollouts a group can hold; None: as many as batches need")
    warmup_steps: int = non_negative(32, "every environment starts with up to this many random steps")
    warmup_seconds: float = non_negative(0.0, "every worker starts with a random delay of up to this")
    timeout_seconds: float = positive(300.0, "a process that does not answer for this long is replaced")
    start_timeout_seconds: float = positive(
        120.0, "a process that takes longer than this to start is replaced"
    )
    # In serial runs nothing dies, and they are always remembered.
    rebuild: bool = plain_key(False, "games whose process died are replayed from seed and actions, in memory")
    max_failures: int = positive(3, "deaths of a process without a rollout between them until the run ends")


@section_class
class Devices:
    """Which devices learn, and which choose actions."""

    learner: str = plain_key("all", "numbers of the devices that learn ('0,1'), or 'all'")
    actor: str = plain_key(
        "first", "numbers of those that choose actions, 'all', or 'first' (of the learner's)"
    )
    cpu_count: int | None = positive(None, "without a GPU: splits the CPU into this many devices")


@section_class
class AgentConfig:
    """A training of an agent; sections that only some of its config files have are None in the others."""

    seed: int = sections.seed(777)
    train_for_env_steps: int = positive(2_000_000_000, "environment steps of the whole run")
    batch_size: int = sections.batch_size_key(4096, "steps of an update, of all hosts together")
    rollout: int = length_key(32, "steps of a trajectory; gradients run back through all of them")
    max_waiting_batches: int = positive(1, "batches that wait for the learner until actors wait: policy lag")
    # A run that is continued from a checkpoint plays its games on, from seeds and actions, and ends as one that was never
    # stopped (compat.seed_noop: it begins new games, which nobody can play again). On a GPU: docs/clusters.md, Precision.
    serial: bool = plain_key(
        False, "everything in one thread and in order: slow, and two runs are equal bit for bit"
    )
    # A batch has a rollout of every environment; actors play one group while the other's actions are chosen.
    on_policy: bool = plain_key(False, "plays a batch only after the update before it")
    environment: TrainedTask = TrainedTask()
    network: GameNetwork | LanguagePolicy | DrrnPolicy = subsection(GameNetwork)
    algorithm: Any = subsection(Appo)
    optimizer: sections.Optimizer = subsection(sections.Optimizer, eps=1e-6, max_gradient_norm=4.0)
    reward: AgentReward = subsection(AgentReward)
    actors: Actors = subsection(Actors)
    devices: Devices = subsection(Devices)
    hosts: sections.ClusterHosts = subsection(sections.ClusterHosts)
    nonfinite: sections.Nonfinite = subsection(sections.Nonfinite)
    save_every_steps: int = positive(10_000_000, "environment steps between checkpoints")
    save_every_seconds: float = sections.SAVE_EVERY_SECONDS
    keep_checkpoints: int = positive(
        5, "number of newest checkpoints that stay, and of newest ones of save_every_steps, besides the best"
    )
    stats_episodes: int = positive(1000, "episodes over which statistics are means")
    record_every: int = non_negative(
        0, "every Nth game of each environment is recorded in recordings/; 0: none"
    )
    log_every_seconds: float = positive(20.0, "seconds between rows of metrics")
    matmul_precision: str = sections.MATMUL_PRECISION
    compile_cache: str = plain_key(
        "auto",
        "folder of compiled programs; 'auto': that of the variable JAX_COMPILATION_CACHE_DIR, or else in the user's cache folder; "
        "'': as the variable says alone",
    )
    profile: sections.Profile = subsection(sections.Profile, steps=5)
    wandb: sections.Wandb = subsection(sections.Wandb)
    compat: sections.Compat = sections.Compat()
    # Of language agents.
    probes: ProbeQuestions | None = None
    tests: str | None = None
    published_files: bool = False
    lora: sections.LoraOnBase | None = None
    sharding: sections.Sharding | None = None
    # Of rewards that are learned while the agent plays.
    annotator: OnlineAnnotator = OnlineAnnotator()
    queue: Queue = Queue()


def agent_config(config: ConfigDict | Mapping[str, Any]) -> AgentConfig:
    """The values of a training's config, also of an older run's, with the sections of its kinds of network, algorithm and reward.

    The section of a part from outside the package (module:Class) has all its values, also those of its own keys.
    """
    given = {name: config.get(name, {}) for name in ("network", "algorithm", "reward", "annotator")}
    networks: dict[str, type] = {"language": LanguagePolicy, "drrn": DrrnPolicy}
    network = networks.get(given["network"].get("kind"), GameNetwork)
    if network is GameNetwork and given["network"] and "read_text" not in given["network"]:
        # Runs of versions without this key have networks that read the text.
        given["network"] = {**given["network"], "read_text": True}
    algorithms: dict[str, type] = {"minibatch_size": Ppo, "replay_steps": QLearning}
    algorithm = next((kind for key, kind in algorithms.items() if key in given["algorithm"]), Appo)
    return schema.read_section(
        AgentConfig,
        config,
        network=schema.read_section(network, given["network"]),
        algorithm=_read(algorithm, given["algorithm"], "name"),
        # Rewards that are learned while the agent plays have a queue of questions.
        reward=_read(LearnedReward if "queue" in config else AgentReward, given["reward"], "kind"),
        annotator=_read(OnlineAnnotator, given["annotator"], "kind"),
    )


def agent_reward(section: ConfigDict | Mapping[str, Any]) -> AgentReward:
    """The values of a frozen reward's section, also of one that rated episodes."""
    return _read(AgentReward, section, "kind")


def _read(kind: Any, section: ConfigDict | Mapping[str, Any], choice: str) -> Any:
    is_outside = entry_points.is_entry_point(section.get(choice))
    return (schema.read_open_section if is_outside else schema.read_section)(kind, section)
