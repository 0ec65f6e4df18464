"""Every file that is read, damaged in every way: what cannot be used is said in one line, and nothing else is raised."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json
import pickle
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import launch
from motif_jax.support.errors import UserError


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


def table(*rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


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
    cases: tuple[int, int] = (8, 30)


# Of those that take long to be read.
FEW = (1, 4)
READERS: dict[str, Reader] = {}


def reader(
    make: Callable[[Path], Path],
) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    def add(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        READERS[read.__name__] = Reader(make, read)
        return read

    return add


# Run folders.


@reader(lambda at: put(at, "config.json", {"stage": "train_agent", "seed": 1}))
def run_config(path: Path) -> None:
    from motif_jax.support import run_folder

    run_folder.read_config(path.parent)


def _agent_config(at: Path) -> Path:
    from motif_jax.support import run_folder
    from tests.playing.agent_runs import recall_config

    return put(at, "config.json", run_folder.as_plain(recall_config()))


@reader(_agent_config)
def agent_config(path: Path) -> None:
    from motif_jax.playing import agent_policy

    agent_policy.environment_of(agent_policy.read_config(path.parent))


@reader(lambda at: put(at, "plan.json", {"reward_step": 3}))
def reward_choice(path: Path) -> None:
    from motif_jax.online import reward_choice

    reward_choice.settled(path.parent)


@reader(lambda at: put(at, "films.json", {"a": {"source": "s", "files": ["a.html"], "steps": 3}}))
def films(path: Path) -> None:
    from motif_jax.reports.film_files import Films
    from tests.reward_fixtures import load_config

    Films(path.parent, path.parent, load_config("replay", "").forms).has("a", "source")


@reader(
    lambda at: put(
        at,
        "metrics.jsonl",
        lines({"step": 1, "loss": 0.5, "time": 1.0}, {"step": 2, "loss": 0.4, "time": 2.0}),
    )
)
def metrics(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_metrics(path.parent)


@reader(
    lambda at: put(
        at,
        "episodes.jsonl",
        lines(*({"step": n, "env": 0, "episode": n, "seed": n, "return": 1.0} for n in range(3))),
    )
)
def episodes(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_episodes(path.parent)


@reader(lambda at: put(at, "train_metrics.csv", table(("epoch", "loss"), (0, 0.6), (1, 0.5))))
def curve_table(path: Path) -> None:
    from motif_jax.support import curves

    curves.read_csv(path)


@reader(lambda at: put(at, "summary.json", {"used": {"validation/accuracy": 0.9}}))
def reward_summary(path: Path) -> None:
    from motif_jax.reports import run_data

    run_data.read_reward_summary(path.parent)


def _label_log(at: Path) -> Path:
    from motif_jax.rewards.label_log import Label, LabelLog, Payment

    log = LabelLog(at / "labels.jsonl")
    log.append([Label(1, 10, ("a key",), 1, 0.7, 5, 0.1, 3), Payment(2, 20, ["a key"])])
    log.close()
    return at / "labels.jsonl"


@reader(_label_log)
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


@reader(_of_evaluation("evaluation.json"))
def evaluation(path: Path) -> None:
    from motif_jax.reports import evaluation_files

    evaluation_files.read_evaluation(path.parent)


@reader(_of_evaluation("episodes.jsonl"))
def journal(path: Path) -> None:
    from motif_jax.reports import evaluation_files, messages

    for row in evaluation_files.read_evaluation(path.parent)["rows"]:
        messages.unpack(row["messages"])


@reader(_of_evaluation("messages.json"))
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


@reader(_generalisation)
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


for _name in ("probes.json", "probes.jsonl", "clauses.jsonl"):
    READERS[f"report of {_name}"] = Reader(_probes(_name), _read_probes)


@reader(
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


@reader(_recording)
def recording(path: Path) -> None:
    from motif_jax.envs import replay

    for _ in replay.replay(replay.Recording.load(path), ()):
        pass


@reader(
    lambda at: put(
        at,
        "rows.jsonl",
        lines({"method": "a", "seed": 1, "flags": "", "games": {"score": [1, 2]}, "figures": {}, "steps": 5}),
    )
)
def study_rows(path: Path) -> None:
    from motif_jax.reports import study

    study.find(study.read_rows(path), "a", 1, "")


# Annotation.


@reader(
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


@reader(_lexicon)
def lexicon(path: Path) -> None:
    from motif_jax.annotation.lexicon import load_lexicon

    load_lexicon(path)


def _prompt(at: Path) -> Path:
    from motif_jax.annotation.prompts import prompt_path

    return Path(shutil.copy(prompt_path("default", ""), at / "prompt.yaml"))


@reader(_prompt)
def prompt(path: Path) -> None:
    from motif_jax.annotation.prompts import goals_of, load_prompt

    goals_of(path)
    load_prompt(path, "defaultgoal", "analysis")


def _answers(at: Path) -> Path:
    from motif_jax.support.checked_lines import LineWriter

    with LineWriter(at / "answers.jsonl") as writer:
        writer.append([("0" * 31 + "1", {"label": 1, "probabilities": [0.1, 0.9]})])
    return at / "answers.jsonl"


@reader(_answers)
def answers(path: Path) -> Any:
    from motif_jax.support.checked_lines import read_lines

    found = dict(read_lines(path))
    assert list(found.values()) in ([], [{"label": 1, "probabilities": [0.1, 0.9]}])


# Rewards.


@reader(lambda at: put(at, "table.json", {"You kill the newt!": 1.5, "": 0}))
def reward_table(path: Path) -> None:
    from motif_jax.rewards.table import read_table

    read_table(str(path))


@reader(lambda at: put(at, "vectors.txt", "2 3\nkill 0.1 0.2 0.3\nnewt 1 2 3\n"))
def word_vectors(path: Path) -> None:
    from motif_jax.rewards.word_vectors import FileVectors

    FileVectors(path).of(b"kill")


def _training_texts(at: Path) -> Path:
    from motif_jax.rewards import training_texts

    training_texts.write_training_texts(at, np.zeros((3, 256), np.uint8))
    return at / training_texts.FILE


@reader(_training_texts)
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


for _name in (
    "data/message.npy",
    "data/blstats.npy",
    "info/score.npy",
    "preference/test.npy",
    "dataset.json",
):
    READERS[f"pairs {_name}"] = Reader(_pairs(_name), _read_pairs)


def _pairs_table(at: Path) -> Path:
    from motif_jax.datasets.pairs import parquet
    from motif_jax.datasets.pairs.dataset import PairsDataset
    from tests.reward_fixtures import make_dataset

    make_dataset(at / "dataset", pairs=6, messages=4)
    for _ in parquet.write(PairsDataset.open(at / "dataset"), at / "pairs.parquet"):
        pass
    return at / "pairs.parquet"


@reader(_pairs_table)
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


for _name in (
    "tokens.npy",
    "offsets.npy",
    "tokens.json",
    "token_columns/reward.npy",
    "item_columns/prompt.npy",
):
    READERS[f"tokens {_name}"] = Reader(_tokens(_name), _read_tokens)


def _dialogues(at: Path) -> Path:
    from motif_jax.datasets.dialogues import parquet
    from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues

    said = Dialogue(("a", "b", "c"), (None, 1.0, None), True, {"group": 1})
    parquet.write(at / "dialogues.parquet", [Dialogues.of([said] * 3)], {"config": {"task": "wordle"}})
    return at / "dialogues.parquet"


@reader(_dialogues)
def dialogues(path: Path) -> None:
    from motif_jax.datasets.dialogues import parquet

    parquet.about(path)
    list(parquet.read(path))


@reader(_dialogues)
def corpus_of_dialogues(path: Path) -> None:
    from motif_jax.language import corpus

    list(corpus.read([path], "line"))


def _sequence(done: Any = True) -> dict[str, Any]:
    return {
        "sequence": [["Wordle:\n", 0], ["crane\n", 1], ["b b\n", False]],
        "reward": [0, -1, 0],
        "done": done,
    }


@reader(lambda at: put(at, "games.jsonl", lines(_sequence(), {**_sequence(), "id": 7})))
def dialogue_lines(path: Path) -> None:
    from motif_jax.datasets.dialogues import json_lines

    for part in json_lines.read(path):
        list(part)


@reader(lambda at: put(at, "rewards.json", {"262": 0.01, "5": 2}))
def token_rewards(path: Path) -> None:
    from motif_jax.datasets.dialogues import token_rewards

    token_rewards.from_file(path)


def _trajectories(at: Path) -> Path:
    from motif_jax.datasets.trajectories import parquet

    about = {"environment": "BabyAI-GoToLocal-v0", "options": {}, "actions": ["turn left", "turn right"]}
    parquet.write(at / parquet.FILE, [parquet.Episode(0, 1, ["a", "b"], [0, 1], [0.0, 1.0])], about)
    return at / parquet.FILE


@reader(_trajectories)
def trajectories(path: Path) -> None:
    from motif_jax.datasets.trajectories import parquet

    parquet.read(path)


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


for _name in ("config.json", "model.safetensors", "tokenizer.json"):
    READERS[f"model {_name}"] = Reader(_model(_name), _read_model, FEW)


def _text_agent(name: str) -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        from tests import text_agents

        return text_agents.write(at) / "agent" / name

    return make


def _read_text_agent(path: Path) -> None:
    from motif_jax.offline import agent_folder

    agent_folder.load(next(parent for parent in path.parents if parent.name == "agent"))


for _name in (
    "agent.json",
    "trunks/policy/config.json",
    "trunks/policy/model.safetensors",
    "heads/heads.safetensors",
    "heads/heads.json",
):
    READERS[f"text agent {_name}"] = Reader(_text_agent(_name), _read_text_agent, FEW)


@reader(
    lambda at: put(
        at, "prompts.jsonl", lines({"prompt": "go", "candidates": ["left", "right"]}, {"prompt": "stop"})
    )
)
def questions(path: Path) -> None:
    from motif_jax.language import text_files

    text_files.read_questions(path, "file")


@reader(lambda at: put(at, "texts.jsonl", lines({"text": "go to", "prompt": "where?"}, {"text": "stop"})))
def corpus_lines(path: Path) -> None:
    from motif_jax.language import corpus

    list(corpus.read([path], "line"))


@reader(lambda at: put(at, "texts.txt", "go to\n\nstop\n"))
def corpus_texts(path: Path) -> None:
    from motif_jax.language import corpus

    for split in corpus.SPLITS:
        list(corpus.read([path], split))


@reader(lambda at: put(at, "scores.jsonl", lines({"prompt": "go", "scores": [1.0]})))
def answer_lines(path: Path) -> None:
    from motif_jax.language.text_files import Answers

    with Answers(path, [{"prompt": "go"}, {"prompt": "stop"}], 1):
        pass


# Text tasks.


@reader(lambda at: put(at, "words.txt", "crane\nmoist\n"))
def words(path: Path) -> None:
    from motif_jax.envs.wordle.words import read_words

    read_words("wordle.words", str(path))


@reader(
    lambda at: put(at, "tweets.csv", table((210, "", "", "", "Wordle 210 2/6\n\n⬛🟨⬛⬛⬛\n🟩🟩🟩🟩🟩")))
)
def tweets(path: Path) -> None:
    from motif_jax.envs.wordle import tweets
    from motif_jax.envs.wordle.words import read_words

    tweets.read_csv(path, read_words("wordle.words", "tweet_words"))


@reader(
    lambda at: put(
        at,
        "tweets.json",
        {"games": [["crane", ["<g><y><y><g><g>"]]], "transitions": {"crane": {"<b><b><b><b><b>": ["moist"]}}},
    )
)
def tweet_structure(path: Path) -> None:
    from motif_jax.envs.wordle import tweets

    tweets.read_structure(path)


@reader(lambda at: put(at, "indexes.json", [0, 2]))
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


@reader(_comments)
def comments(path: Path) -> None:
    from motif_jax.envs.reddit import data

    data.read_comments("reddit.folder", str(path.parent))


@reader(lambda at: put(at, "indexes.json", [0, 2]))
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


@reader(lambda at: put(at, "cache.json", [[0.1, 0.2], [0.3, -0.1]]))
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


# Files of the published tools.


@reader(
    lambda at: put(at, "log.csv", table(("update", "episodes", "frames"), (0, 2, 10), (1, 4, 20), (2, 5, 30)))
)
def glam_log_that_goes_on(path: Path) -> None:
    from motif_jax.published.glam_log import GlamLog

    GlamLog(path.parent, 4, 20.0, (0.5, 0.01), updates=2).close()


@reader(lambda at: put(at, "clauses.jsonl", lines({"update": 0, "step": 1}, {"update": 1, "step": 2})))
def lines_that_go_on(path: Path) -> None:
    from motif_jax.support.files import append_lines

    append_lines(path, lambda line: json.loads(line)["update"] < 1).close()


@reader(
    lambda at: put(
        at,
        "log.csv",
        table(("update", "frames", "return_mean", "success_rate", "num_frames_mean"), (0, 10, 0.5, 0.5, 30)),
    )
)
def glam_log(path: Path) -> None:
    from motif_jax.published import glam_results

    glam_results.read_curve(path.parent, "success")


def _array(content: Any, name: str = "array.npy") -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        np.save(at / name, content)
        return at / name

    return make


@reader(_array(np.array([0.5, 1.0])))
def glam_returns(path: Path) -> None:
    from motif_jax.published import glam_results

    glam_results.read_returns(path)


@reader(lambda at: put(at, "distrib.csv", table((0.1, 0.9, 0.3, 0.7), (0.2, 0.8, 0.4, 0.6))))
def glam_distributions(path: Path) -> None:
    from motif_jax.published import glam_probes

    glam_probes.read_distributions(path, 2)


@reader(_array(np.array(["go to", "stop"])))
def published_prompts(path: Path) -> None:
    from motif_jax.published import trajectories

    trajectories.read_array(path)


@reader(lambda at: put(at, "results.pkl", pickle.dumps({"task": {"motif": [([0.0, 1.0], [2.0, 3.0])]}})))
def published_results(path: Path) -> None:
    from motif_jax.published import results

    results.read_published(path)


def _evaluation_log(at: Path) -> Path:
    log = {
        "all_logs": {},
        "eval_dump": {"results": [(("a",), [("a", "b", 1.0, True)])], "entropies": [0.5]},
        "config": {},
    }
    return put(at, "eval_log.pkl", pickle.dumps(log))


@reader(_evaluation_log)
def published_log(path: Path) -> None:
    from motif_jax.published import evaluation_logs

    evaluation_logs.read(path).told()


@reader(
    lambda at: put(
        at, "games.pkl", pickle.dumps({"state_actions": [], "vocab_path": "wordle_official_200.txt"})
    )
)
def published_games(path: Path) -> None:
    from motif_jax.published import wordle_games

    wordle_games.read_games(path)


def _checkpoint(at: Path) -> Path:
    from tests import torch_files

    content = {"model": {"a.weight": torch_files.tensor(np.ones((2, 3), np.float32))}, "num_iter": 7}
    return torch_files.write(at / "checkpoint.pth", content)


@reader(_checkpoint)
def torch_checkpoint(path: Path) -> None:
    from motif_jax.published import torch_file

    list(torch_file.tensors(torch_file.read_checkpoint(path)))


def _ilql(at: Path) -> Path:
    from tests import torch_files
    from tests.stages.import_ilql_test import ilql

    return torch_files.write(
        at / "model.pkl", {name: torch_files.tensor(array) for name, array in ilql().items()}
    )


@reader(_ilql)
def ilql_checkpoint(path: Path) -> None:
    from motif_jax.published import ilql_checkpoint

    ilql_checkpoint.read(path, heads=2)


@reader(
    lambda at: put(
        at,
        "quantiles.csv",
        table([f"{0.05 * n:.2f}" for n in range(1, 20)], [f"{0.1 * n:.2f}" for n in range(1, 20)]),
    )
)
def published_quantiles(path: Path) -> None:
    from motif_jax.published import torch_import

    torch_import.read_quantiles(path, -1)


# The damage.

_OTHERS: tuple[Any, ...] = (None, -1, 2.5e300, "x", "", [], {}, [None], {"x": 1}, True, 10**30)


def _nodes(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield from _nodes(child, (*place, key))


def _replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    changed = copy.deepcopy(value)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    if other is KeyError:
        del holder[place[-1]]
    else:
        holder[place[-1]] = other
    return changed


def _json_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """A value of another kind in any place of a JSON file, or of one of its lines; a key that is lost."""
    try:
        parts = [json.loads(data)]
    except ValueError:
        try:
            parts = [json.loads(line) for line in data.splitlines()]
        except ValueError:
            return
    cases = [
        (n, place, other)
        for n, part in enumerate(parts)
        for place in _nodes(part)
        for other in (*_OTHERS, KeyError)
    ]
    cases = [case for case in cases if case[1] or case[2] is not KeyError]
    chosen = rng.permutation(len(cases))[:count]
    for number in chosen:
        n, place, other = cases[number]
        changed = [*parts[:n], _replaced(parts[n], place, other), *parts[n + 1 :]]
        end = "\n" if data.endswith(b"\n") else ""
        name = "lost" if other is KeyError else repr(other)
        yield (
            f"{n}:{'/'.join(map(str, place))} = {name}",
            ("\n".join(map(json.dumps, changed)) + end).encode(),
        )


def _byte_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """Cut off, emptied, flipped, overwritten, longer."""
    size = len(data)
    yield "emptied", b""
    for cut in sorted({1, size // 4, size // 2, size - 2, size - 1} & set(range(1, size))):
        yield f"cut off at {cut}", data[:cut]
    for _ in range(count):
        place, bit = int(rng.integers(size)), int(rng.integers(8))
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)
    start = size // 3
    yield "zeros in the middle", data[:start] + bytes(min(64, size - start)) + data[start + 64 :]
    yield "all zeros", bytes(size)
    yield "noise", rng.bytes(size)
    yield "longer", data + rng.bytes(40)
    yield "twice", data + data
    yield "no text", b"\xff\xfe\0" + data
    yield "deep", b"[" * 100_000


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kind = READERS[name]
    (tmp_path / "good").mkdir()
    path = kind.make(tmp_path / "good")
    kind.read(path)
    data = path.read_bytes()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found = []
    harms = [*_byte_harms(data, rng, kind.cases[0]), *_json_harms(data, rng, kind.cases[1])]
    for harm, changed in harms[:: 3 if kind.cases == FEW else 1]:
        path.write_bytes(changed)
        found += _told(kind, path, harm)
    path.unlink()
    found += _told(kind, path, "not there")
    path.unlink(missing_ok=True)  # of those that make one
    path.mkdir()
    found += _told(kind, path, "a folder")
    assert not found, "\n".join(found)


def _told(kind: Reader, path: Path, harm: str) -> list[str]:
    """What is wrong with how the damage was told."""
    try:
        kind.read(path)
    except UserError as error:
        return [] if str(error).strip() else [f"{harm}: nothing is said"]
    except Exception as error:
        if launch.told(error, path.parent):
            return []
        return [f"{harm}: {type(error).__name__}: {str(error)[:150]}"]
    return []
