"""What runs and evaluations write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.damaged_files.kinds import Readers, lines, put, table

READERS = Readers()

# Run folders.


@READERS.of(lambda at: put(at, "config.json", {"stage": "train_agent", "seed": 1}))
def run_config(path: Path) -> None:
    from motif_jax.support import run_folder

    run_folder.read_config(path.parent)


def _agent_config(at: Path) -> Path:
    from motif_jax.support import run_folder
    from tests.playing.agent_runs import recall_config

    return put(at, "config.json", run_folder.as_plain(recall_config()))


@READERS.of(_agent_config)
def agent_config(path: Path) -> None:
    from motif_jax.playing import agent_policy

    agent_policy.environment_of(agent_policy.read_config(path.parent))


@READERS.of(lambda at: put(at, "plan.json", {"reward_step": 3}))
def reward_choice(path: Path) -> None:
    from motif_jax.online import reward_choice

    reward_choice.settled(path.parent)


@READERS.of(lambda at: put(at, "films.json", {"a": {"source": "s", "files": ["a.html"], "steps": 3}}))
def films(path: Path) -> None:
    from motif_jax.reports.film_files import Films
    from tests.reward_fixtures import load_config

    Films(path.parent, path.parent, load_config("replay", "").forms).has("a", "source")


@READERS.of(
    lambda at: put(
        at,
        "metrics.jsonl",
        lines({"step": 1, "loss": 0.5, "time": 1.0}, {"step": 2, "loss": 0.4, "time": 2.0}),
    )
)
def metrics(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_metrics(path.parent)


@READERS.of(
    lambda at: put(
        at,
        "episodes.jsonl",
        lines(*({"step": n, "env": 0, "episode": n, "seed": n, "return": 1.0} for n in range(3))),
    )
)
def episodes(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_episodes(path.parent)


@READERS.of(lambda at: put(at, "train_metrics.csv", table(("epoch", "loss"), (0, 0.6), (1, 0.5))))
def curve_table(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_csv(path)


@READERS.of(lambda at: put(at, "summary.json", {"used": {"validation/accuracy": 0.9}}))
def reward_summary(path: Path) -> None:
    from motif_jax.reports import run_data

    run_data.read_reward_summary(path.parent)


def _label_log(at: Path) -> Path:
    from motif_jax.rewards.label_log import Label, LabelLog, Payment

    log = LabelLog(at / "labels.jsonl")
    log.append([Label(1, 10, ("a key",), 1, 0.7, 5, 0.1, 3), Payment(2, 20, ["a key"])])
    log.close()
    return at / "labels.jsonl"


@READERS.of(_label_log)
def labels(path: Path) -> None:
    from motif_jax.reports import learned_reward

    learned_reward.read(path.parent, "retrieval")


# Evaluations and what pages are made of.


def _evaluation(at: Path) -> None:
    from tests.made_up_runs import evaluation_rows, write_evaluation

    write_evaluation(at, "random", evaluation_rows(2, 1.0, 0))


def _of_evaluation(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        _evaluation(at)
        return at / name

    return make


@READERS.of(_of_evaluation("evaluation.json"))
def evaluation(path: Path) -> None:
    from motif_jax.reports import evaluation_files

    evaluation_files.read_evaluation(path.parent)


@READERS.of(_of_evaluation("episodes.jsonl"))
def journal(path: Path) -> None:
    from motif_jax.reports import evaluation_files, messages

    for row in evaluation_files.read_evaluation(path.parent)["rows"]:
        messages.unpack(row["messages"])


@READERS.of(_of_evaluation("messages.json"))
def met_messages(path: Path) -> None:
    from motif_jax.reports import evaluation_files

    evaluation_files.read_messages(path.parent)


def _generalisation(at: Path) -> Path:
    value = {"value": 0.5, "low": 0.4, "high": 0.6}
    change = {**value, "pairs": 4}
    test = {
        "name": "a",
        "what": "b",
        "success": value,
        "return": value,
        "length": value,
        "success_change": change,
        "return_change": change,
    }
    about = {"player": "p", "base": {}, "episodes": 4, "confidence": 0.95, "left_out": {}, "tests": [test]}
    return put(at, "tests.json", about)


@READERS.of(_generalisation)
def generalisation(path: Path) -> None:
    from motif_jax.reports import generalisation_files

    generalisation_files.table(generalisation_files.read(path.parent))


def _probes(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        whole = {"probe": 0, "observation": 0, "clause": 0, "probabilities": [0.4, 0.6]}
        probe = {"name": "n", "goal": "g", "observations": [["You see a wall"]], "actions": [], "prompt": "p"}
        put(at, "probes.json", {"actions": ["left", "right"], "probes": [probe]})
        put(at, "probes.jsonl", lines({"update": 0, "step": 0, "probabilities": [[0.5, 0.5]]}))
        put(at, "clauses.jsonl", lines({"update": 0, "without": [whole]}))
        return at / name

    return make


def _read_probes(path: Path) -> None:
    from motif_jax.reports import probes

    probes.read(path.parent)


READERS.each("report of", ("probes.json", "probes.jsonl", "clauses.jsonl"), _probes, _read_probes)


@READERS.of(
    lambda at: put(
        at,
        "own.json",
        [
            {
                "name": "n",
                "goal": "go to the red ball",
                "observations": [["You see a wall 2 steps left"]],
                "actions": [],
            }
        ],
    )
)
def own_probes(path: Path) -> None:
    from motif_jax.envs.babyai_text import probes

    probes.read(path)


def _recording(at: Path) -> Path:
    from motif_jax.actors.rerecording import record_actions

    record_actions("BabyAI-GoToLocal-v0", {"max_episode_steps": 9}, 3, np.zeros(4, np.int64)).save(
        at / "game.json"
    )
    return at / "game.json"


@READERS.of(_recording)
def recording(path: Path) -> None:
    from motif_jax.envs import replay

    for _ in replay.replay(replay.Recording.load(path), ()):
        pass


@READERS.of(
    lambda at: put(
        at,
        "rows.jsonl",
        lines({"method": "a", "seed": 1, "flags": "", "games": {"score": [1, 2]}, "figures": {}, "steps": 5}),
    )
)
def study_rows(path: Path) -> None:
    from motif_jax.reports import study

    study.find(study.read_rows(path), "a", 1, "")
