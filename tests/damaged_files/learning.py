"""Annotation, rewards, datasets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.damaged_files.kinds import Readers, lines, put

READERS = Readers()

# Annotation.


@READERS.of(
    lambda at: put(
        at, "manifest.json", {"format": 1, "name": "n", "annotator": {}, "dataset": {}, "questions": {}}
    )
)
def manifest(path: Path) -> None:
    from motif_jax.annotation import manifest

    manifest.differences(manifest.read(path) or {}, {"format": 1})


def _lexicon(at: Path) -> Path:
    import motif_jax.annotation.lexicon as module

    source = Path(module.__file__).parent / "lexicons" / module.BUILT_IN
    return Path(shutil.copy(source, at / "lexicon.yaml"))


@READERS.of(_lexicon)
def lexicon(path: Path) -> None:
    from motif_jax.annotation.lexicon import load_lexicon

    load_lexicon(path)


def _prompt(at: Path) -> Path:
    from motif_jax.annotation.prompts import prompt_path

    return Path(shutil.copy(prompt_path("default", ""), at / "prompt.yaml"))


@READERS.of(_prompt)
def prompt(path: Path) -> None:
    from motif_jax.annotation.prompts import goals_of, load_prompt

    goals_of(path)
    load_prompt(path, "defaultgoal", "analysis")


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


# Rewards.


@READERS.of(lambda at: put(at, "table.json", {"You kill the newt!": 1.5, "": 0}))
def reward_table(path: Path) -> None:
    from motif_jax.rewards.table import read_table

    read_table(str(path))


@READERS.of(lambda at: put(at, "vectors.txt", "2 3\nkill 0.1 0.2 0.3\nnewt 1 2 3\n"))
def word_vectors(path: Path) -> None:
    from motif_jax.rewards.word_vectors import FileVectors

    FileVectors(path).of(b"kill")


def _training_texts(at: Path) -> Path:
    from motif_jax.rewards import training_texts

    training_texts.write_training_texts(at, np.zeros((3, 256), np.uint8))
    return at / training_texts.FILE


@READERS.of(_training_texts)
def training_texts(path: Path) -> None:
    from motif_jax.rewards import training_texts

    training_texts.read_training_texts(path.parent).has(np.zeros((2, 256), np.uint8))


# Datasets.


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


def _pairs_table(at: Path) -> Path:
    from motif_jax.datasets.pairs import parquet
    from motif_jax.datasets.pairs.dataset import PairsDataset
    from tests.reward_fixtures import make_dataset

    make_dataset(at / "dataset", pairs=6, messages=4)
    for _ in parquet.write(PairsDataset.open(at / "dataset"), at / "pairs.parquet"):
        pass
    return at / "pairs.parquet"


@READERS.of(_pairs_table)
def pairs_table(path: Path) -> None:
    from motif_jax.datasets.pairs import parquet

    shutil.rmtree(path.parent / "new", ignore_errors=True)
    parquet.contents(path)
    for _ in parquet.read(path, path.parent / "new"):
        pass


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


@READERS.of(_dialogues)
def corpus_of_dialogues(path: Path) -> None:
    from motif_jax.language import corpus

    list(corpus.read([path], "line"))


def _sequence(done: Any = True) -> dict[str, Any]:
    return {
        "sequence": [["Wordle:\n", 0], ["crane\n", 1], ["b b\n", False]],
        "reward": [0, -1, 0],
        "done": done,
    }


@READERS.of(lambda at: put(at, "games.jsonl", lines(_sequence(), {**_sequence(), "id": 7})))
def dialogue_lines(path: Path) -> None:
    from motif_jax.datasets.dialogues import json_lines

    for part in json_lines.read(path):
        list(part)


@READERS.of(lambda at: put(at, "rewards.json", {"262": 0.01, "5": 2}))
def token_rewards(path: Path) -> None:
    from motif_jax.datasets.dialogues import token_rewards

    token_rewards.from_file(path)


def _trajectories(at: Path) -> Path:
    from motif_jax.datasets.trajectories import parquet

    about = {"environment": "BabyAI-GoToLocal-v0", "options": {}, "actions": ["turn left", "turn right"]}
    parquet.write(at / parquet.FILE, [parquet.Episode(0, 1, ["a", "b"], [0, 1], [0.0, 1.0])], about)
    return at / parquet.FILE


@READERS.of(_trajectories)
def trajectories(path: Path) -> None:
    from motif_jax.datasets.trajectories import parquet

    parquet.read(path)
