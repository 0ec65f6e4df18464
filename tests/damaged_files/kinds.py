"""The kinds of files that cost most to lose: how a good one is made, and how its users read it."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np


def put(folder: Path, name: str, content: Any) -> Path:
    """Writes text, bytes, or anything else as JSON; returns the path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# Harms at random of a file's bytes, and of the values in it; the second of those that take long to be read.
USUAL, FEW = (8, 30), (1, 4)


@dataclasses.dataclass(frozen=True)
class Reader:
    """A kind of file.

    Attributes:
      make: writes a good one into a folder, with what belongs to it, and returns the file that is damaged.
      read: reads it as its users do.
      cases: harms at random of bytes, and of values in JSON.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    cases: tuple[int, int] = USUAL


class Readers(dict[str, Reader]):
    """Kinds of file by name."""

    def of(self, make: Callable[[Path], Path]) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
        """Takes the function below it as what reads the file that `make` writes."""

        def add(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
            self[read.__name__] = Reader(make, read)
            return read

        return add

    def each(
        self,
        kind: str,
        names: Iterable[str],
        make: Callable[[str], Callable[[Path], Path]],
        read: Callable[[Path], Any],
        cases: tuple[int, int] = USUAL,
    ) -> None:
        """Takes `read` as what reads each of several files that belong together, of which `make` says how one is written."""
        for name in names:
            self[f"{kind} {name}"] = Reader(make(name), read, cases)


READERS = Readers()


@READERS.of(lambda at: put(at, "config.json", {"stage": "train_agent", "seed": 1}))
def run_config(path: Path) -> None:
    from motif_jax.support import run_folder

    run_folder.read_config(path.parent)


def _agent_config(at: Path) -> Path:
    from motif_jax.support import run_folder
    from tests.rollouts.agent_runs import recall_config

    return put(at, "config.json", run_folder.as_plain(recall_config()))


@READERS.of(_agent_config)
def agent_config(path: Path) -> None:
    from motif_jax.rollouts import agent_policy

    agent_policy.environment_of(agent_policy.read_config(path.parent))


@READERS.of(
    lambda at: put(
        at,
        "metrics.jsonl",
        lines({"step": 1, "loss": 0.5, "time": 1.0}, {"step": 2, "loss": 0.4, "time": 2.0}),
    )
)
def metrics(path: Path) -> None:
    from motif_jax.support import metric_files

    metric_files.read_metrics(path.parent)


def _label_log(at: Path) -> Path:
    from motif_jax.labels.label_queue import Label
    from motif_jax.rewards.label_log import LabelLog

    log = LabelLog(at / "labels.jsonl")
    log.add([Label(("a key",), 1, 0.7, 0.1, 3, number=1, step=10, met=5)])
    log.close()
    return at / "labels.jsonl"


@READERS.of(_label_log)
def labels(path: Path) -> None:
    from motif_jax.reports import learned_reward

    learned_reward.read(path.parent, "retrieval")


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
        at, "manifest.json", {"format": 1, "name": "n", "annotator": {}, "dataset": {}, "questions": {}}
    )
)
def manifest(path: Path) -> None:
    from motif_jax.labels import manifest

    manifest.differences(manifest.read(path) or {}, {"format": 1})


def _answers(at: Path) -> Path:
    from motif_jax.support.checked_lines import LineWriter

    with LineWriter(at / "answers.jsonl") as writer:
        writer.append([("0" * 31 + "1", {"label": 1, "probabilities": [0.1, 0.9]})])
    return at / "answers.jsonl"


@READERS.of(_answers)
def answers(path: Path) -> Any:
    from motif_jax.support.checked_lines import read_lines

    found = dict(read_lines(path))
    assert list(found.values()) in ([], [{"label": 1, "probabilities": [0.1, 0.9]}])


def _pairs(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        from tests.reward_fixtures import make_dataset

        make_dataset(at, pairs=6, messages=4)
        return at / name

    return make


def _read_pairs(path: Path) -> None:
    from motif_jax.datasets.pairs.dataset import PairsDataset

    folder = path.parent if path.name == "dataset.json" else path.parent.parent
    dataset = PairsDataset.open(folder, need=("message", "blstats", "info/score"))
    dataset.preference("test")
    dataset.content_hash()


READERS.each(
    "pairs",
    ("data/message.npy", "data/blstats.npy", "info/score.npy", "preference/test.npy", "dataset.json"),
    _pairs,
    _read_pairs,
)


def _tokens(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        from motif_jax.datasets.tokens.writer import TokensWriter

        columns = {"token_columns": {"reward": np.float32}, "item_columns": {"prompt": np.int32}}
        with TokensWriter(at / "tokens", 1000, "a tokenizer", **columns) as writer:
            for place, item in enumerate([[5, 6, 7], [1], [9, 2]]):
                writer.add(item, {"reward": np.arange(len(item)) / 2}, {"prompt": place})
            writer.commit()
        return at / "tokens" / name

    return make


def _read_tokens(path: Path) -> Any:
    from motif_jax.datasets.tokens.dataset import TokensDataset

    folder = next(parent for parent in path.parents if parent.name == "tokens")
    found = TokensDataset(folder)
    found.check_digests()
    return [found.item(place).tolist() for place in range(found.num_items)], found.token_columns[
        "reward"
    ].tolist()


READERS.each(
    "tokens",
    ("tokens.npy", "offsets.npy", "tokens.json", "token_columns/reward.npy", "item_columns/prompt.npy"),
    _tokens,
    _read_tokens,
)


def _dialogues(at: Path) -> Path:
    from motif_jax.datasets.dialogues import parquet
    from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues

    said = Dialogue(("a", "b", "c"), (None, 1.0, None), True, {"group": 1})
    parquet.write(at / "dialogues.parquet", [Dialogues.of([said] * 3)], {"config": {"task": "wordle"}})
    return at / "dialogues.parquet"


@READERS.of(_dialogues)
def dialogues(path: Path) -> None:
    from motif_jax.datasets.dialogues import parquet

    parquet.about(path)
    list(parquet.read(path))


def _trajectories(at: Path) -> Path:
    from motif_jax.datasets.trajectories import parquet

    about = {"environment": "BabyAI-GoToLocal-v0", "options": {}, "actions": ["turn left", "turn right"]}
    parquet.write(at / parquet.FILE, [parquet.TrajectoryEpisode(0, 1, ["a", "b"], [0, 1], [0.0, 1.0])], about)
    return at / parquet.FILE


@READERS.of(_trajectories)
def trajectories(path: Path) -> None:
    from motif_jax.datasets.trajectories import parquet

    parquet.read(path)


def _model(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        from tests.language import talkers

        return talkers.write(at / "model", "gpt2") / name

    return make


def _read_model(path: Path) -> None:
    from motif_jax.language import folder
    from motif_jax.language.tokens import Tokenizer

    found = folder.read(path.parent)
    Tokenizer.read(path.parent, found.config.vocab_size).encode(["go to the red ball"])


READERS.each("model", ("config.json", "model.safetensors", "tokenizer.json"), _model, _read_model, FEW)


@functools.cache
def _agent_files() -> dict[Path, bytes]:
    """What a text agent is, by paths: to make its networks takes a second."""
    from tests import text_agents

    with tempfile.TemporaryDirectory() as name:
        folder = text_agents.write(Path(name))
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _text_agent(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        for path, content in _agent_files().items():
            put(at, str(path), content)
        return at / "agent" / name

    return make


def _read_text_agent(path: Path) -> None:
    from motif_jax.trainers import agent_folder

    agent_folder.load(next(parent for parent in path.parents if parent.name == "agent"))


READERS.each(
    "text agent",
    (
        "agent.json",
        "trunks/policy/config.json",
        "trunks/policy/model.safetensors",
        "heads/heads.safetensors",
        "heads/heads.json",
    ),
    _text_agent,
    _read_text_agent,
    FEW,
)
