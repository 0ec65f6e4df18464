"""Language models, their texts, text tasks."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.damaged_files.kinds import FEW, Reader, Readers, lines, put, table

READERS = Readers()

# Language models and their texts.


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
    from motif_jax.offline import agent_folder

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


@READERS.of(
    lambda at: put(
        at, "prompts.jsonl", lines({"prompt": "go", "candidates": ["left", "right"]}, {"prompt": "stop"})
    )
)
def questions(path: Path) -> None:
    from motif_jax.language import text_files

    text_files.read_questions(path, "file")


@READERS.of(lambda at: put(at, "texts.jsonl", lines({"text": "go to", "prompt": "where?"}, {"text": "stop"})))
def corpus_lines(path: Path) -> None:
    from motif_jax.language import corpus

    list(corpus.read([path], "line"))


@READERS.of(lambda at: put(at, "texts.txt", "go to\n\nstop\n"))
def corpus_texts(path: Path) -> None:
    from motif_jax.language import corpus

    for split in corpus.SPLITS:
        list(corpus.read([path], split))


@READERS.of(lambda at: put(at, "scores.jsonl", lines({"prompt": "go", "scores": [1.0]})))
def answer_lines(path: Path) -> None:
    from motif_jax.language.text_files import Answers

    with Answers(path, [{"prompt": "go"}, {"prompt": "stop"}], 1):
        pass


# Text tasks.


@READERS.of(lambda at: put(at, "words.txt", "crane\nmoist\n"))
def words(path: Path) -> None:
    from motif_jax.envs.wordle.words import read_words

    read_words("wordle.words", str(path))


@READERS.of(
    lambda at: put(at, "tweets.csv", table((210, "", "", "", "Wordle 210 2/6\n\n⬛🟨⬛⬛⬛\n🟩🟩🟩🟩🟩")))
)
def tweets(path: Path) -> None:
    from motif_jax.envs.wordle import tweets
    from motif_jax.envs.wordle.words import read_words

    tweets.read_csv(path, read_words("wordle.words", "tweet_words"))


@READERS.of(
    lambda at: put(
        at,
        "tweets.json",
        {"games": [["crane", ["<g><y><y><g><g>"]]], "transitions": {"crane": {"<b><b><b><b><b>": ["moist"]}}},
    )
)
def tweet_structure(path: Path) -> None:
    from motif_jax.envs.wordle import tweets

    tweets.read_structure(path)


@READERS.of(lambda at: put(at, "indexes.json", [0, 2]))
def tweet_indexes(path: Path) -> None:
    from motif_jax.envs.wordle import tweets

    tweets.read_indexes(path, 3)


def _comments(at: Path) -> Path:
    rows = [
        ["id"] * 11,
        *[["", "", "", "", f"comment {n}", str(n), "", "", "", "", "parent"] for n in range(2)],
    ]
    put(at, "comments_negative.csv", table(*rows))
    return put(at, "comments_positive.csv", table(*rows))


@READERS.of(_comments)
def comments(path: Path) -> None:
    from motif_jax.envs.reddit import data

    data.read_comments("reddit.folder", str(path.parent))


@READERS.of(lambda at: put(at, "indexes.json", [0, 2]))
def comment_indexes(path: Path) -> None:
    from motif_jax.envs.reddit import data

    data.read_indexes("reddit.indexes", str(path), 3)


SCENE = {"caption": "a cat", "dialog": [{"question": "is it red?", "answer": "no"}]}
NUMBERED = {
    "data": {
        "questions": ["is it red"],
        "answers": ["no"],
        "dialogs": [{"caption": "a cat", "dialog": [{"question": 0, "answer": 0}]}],
    }
}


def _read_scenes(path: Path) -> None:
    from motif_jax.envs.visdial import data

    scenes = data.read_dialogues("visdial.data", str(path))
    (path.parent / "cache.json").write_text(
        json.dumps([[0.1, *[0.2] * len(scene.answers)] for scene in scenes])
    )
    data.with_rewards("visdial.reward_cache", str(path.parent / "cache.json"), scenes)


READERS["scenes"] = Reader(lambda at: put(at, "scenes.json", [SCENE, SCENE]), _read_scenes)
READERS["published scenes"] = Reader(lambda at: put(at, "visdial.json", NUMBERED), _read_scenes)


@READERS.of(lambda at: put(at, "cache.json", [[0.1, 0.2], [0.3, -0.1]]))
def reward_cache(path: Path) -> None:
    from motif_jax.envs.visdial import data

    scene = data.Scene("a cat", ("is it red?",), ("no",), None, None, 0)
    data.with_rewards("visdial.reward_cache", str(path), [scene, scene])


def _features(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        rows = np.arange(12, dtype=np.float32).reshape(3, 4)
        if name.endswith(".npz"):
            np.savez(at / name, images_train=rows)
        else:
            h5py = pytest.importorskip("h5py")
            with h5py.File(at / name, "w") as file:
                file["images_train"] = rows
        return at / name

    return make


def _read_features(path: Path) -> None:
    from motif_jax.envs.visdial import data

    features = data.Features("visdial.features", str(path), "train")
    for row in range(len(features)):
        _ = features[row]


for _name in ("features.npz", "features.h5"):
    READERS[_name] = Reader(_features(_name), _read_features)
