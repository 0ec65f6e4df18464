"""The kinds of files that cost most to lose: how a good one is made, and how its users read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import metric_files, run_folder
from motif_jax.core.checked_lines import LineWriter, read_lines
from motif_jax.envs.recording import Recording
from motif_jax.glam import trajectories as step_files
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import parquet as dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.lm import folder as model_folder
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.annotation import shards
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.oni.label_log import LabelLog
from motif_jax.oni.label_queue import Label
from motif_jax.play import agent_policy, evaluation_files, messages
from motif_jax.play.watching import film_recording
from motif_jax.reports import learned_reward
from motif_jax.rl.actors.rerecording import record_actions
from tests import text_agents
from tests.lm import talkers
from tests.made_up_runs import evaluation_rows, write_evaluation
from tests.play.agent_runs import recall_config
from tests.reward_fixtures import make_dataset

# Harms at random of a file's bytes, and of the values in it; the second of those that take long to
# be read.
USUAL = (8, 30)
FEW = (1, 4)


def write_lines(path: Path, *rows: Any) -> None:
    """Writes a line of JSON for each of the rows."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def write_label_log(folder: Path) -> None:
    log = LabelLog(folder / "labels.jsonl")
    log.add([Label(("a key",), 1, 0.7, 0.1, 3, update_index=1, step=10, first_step=5)])
    log.close()


ANSWER = {"label": 1, "probabilities": [0.1, 0.9]}
LEVEL = "BabyAI-GoToLocal-v0"


class Reader(NamedTuple):
    """A kind of file.

    Attributes:
      make: writes a good one into a folder, with what belongs to it.
      name: the file there that is damaged.
      read: reads it as its users do; it takes the folder.
      cases: harms at random of bytes, and of values in JSON.
    """

    make: Callable[[Path], object]
    name: str
    read: Callable[[Path], object]
    cases: tuple[int, int] = USUAL


def read_journal(folder: Path) -> None:
    for row in evaluation_files.read_evaluation(folder)["rows"]:
        messages.unpack(row["messages"])


def write_recording(folder: Path) -> None:
    record_actions(LEVEL, {"max_episode_steps": 9}, 3, np.zeros(4, np.int64)).save(
        folder / "game.json"
    )


def write_answers(folder: Path) -> None:
    with LineWriter(folder / "answers.jsonl") as writer:
        writer.append([("0" * 31 + "1", ANSWER)])


def read_answers(folder: Path) -> None:
    assert list(dict(read_lines(folder / "answers.jsonl")).values()) in ([], [ANSWER])


def read_pairs(folder: Path) -> None:
    dataset = PairsDataset.open(folder, need=("message", "blstats", "info/score"))
    dataset.preference("test")
    dataset.content_hash()


def write_tokens(folder: Path) -> None:
    columns = ({"reward": np.float32}, {"prompt": np.int32})
    with TokensWriter(folder / "tokens", 1000, "a tokenizer", *columns) as writer:
        for number, item in enumerate([[5, 6, 7], [1], [9, 2]]):
            writer.add(item, {"reward": np.arange(len(item)) / 2}, {"prompt": number})
        writer.commit()


def read_tokens(folder: Path) -> None:
    dataset = TokensDataset(folder / "tokens")
    dataset.check_digests()
    for number in range(dataset.num_items):
        dataset.item(number).tolist()
    dataset.token_columns["reward"].tolist()


def write_dialogues(folder: Path) -> None:
    dialogue = Dialogue(("a", "b", "c"), (None, 1.0, None), True, {"group": 1})
    about = {"config": {"task": "wordle"}}
    dialogue_files.write(folder / "dialogues.parquet", [Dialogues.of([dialogue] * 3)], about)


def read_dialogues(folder: Path) -> None:
    dialogue_files.about(folder / "dialogues.parquet")
    list(dialogue_files.read(folder / "dialogues.parquet"))


def write_steps(folder: Path) -> None:
    about = {"environment": LEVEL, "options": {}, "actions": ["turn left", "turn right"]}
    episode = step_files.TrajectoryEpisode(0, 1, ["a", "b"], [0, 1], [0.0, 1.0])
    step_files.write(folder / step_files.FILE, [episode], about)


def read_model(folder: Path) -> None:
    model = model_folder.read(folder / "model")
    Tokenizer.read(folder / "model", model.config.vocab_size).encode(["go to the red ball"])


CURVE = ({"step": 1, "loss": 0.5, "time": 1.0}, {"step": 2, "loss": 0.4, "time": 2.0})
MANIFEST = {"format": 1, "name": "n", "annotator": {}, "dataset": {}, "questions": {}}
READERS = {
    "run_config": Reader(
        lambda folder: write_lines(folder / "config.json", {"stage": "train_agent", "seed": 1}),
        "config.json",
        run_folder.read_config,
    ),
    "agent_config": Reader(
        lambda folder: write_lines(folder / "config.json", run_folder.as_plain(recall_config())),
        "config.json",
        lambda folder: agent_policy.environment_of(agent_policy.read_config(folder)),
    ),
    "metrics": Reader(
        lambda folder: write_lines(folder / "metrics.jsonl", *CURVE),
        "metrics.jsonl",
        metric_files.read_curves,
    ),
    "labels": Reader(
        write_label_log, "labels.jsonl", lambda folder: learned_reward.read(folder, "retrieval")
    ),
    "recording": Reader(
        write_recording,
        "game.json",
        lambda folder: film_recording(Recording.load(folder / "game.json"), ""),
    ),
    "manifest": Reader(
        lambda folder: write_lines(folder / "manifest.json", MANIFEST),
        "manifest.json",
        lambda folder: run_folder.differences(
            shards.read_manifest(folder / "manifest.json") or {}, {"format": 1}, shards.BINDING
        ),
    ),
    "answers": Reader(write_answers, "answers.jsonl", read_answers),
    "dialogues": Reader(write_dialogues, "dialogues.parquet", read_dialogues),
    "trajectories": Reader(
        write_steps, step_files.FILE, lambda folder: step_files.read(folder / step_files.FILE)
    ),
}


def add_readers(
    kind: str,
    names: Sequence[str],
    make: Callable[[Path], object],
    read: Callable[[Path], object],
    cases: tuple[int, int] = USUAL,
) -> None:
    """Adds a reader for each of several files that belong together."""
    for name in names:
        READERS[f"{kind} {name}"] = Reader(make, name, read, cases)


PAIRS = (
    "data/message.npy",
    "data/blstats.npy",
    "info/score.npy",
    "preference/test.npy",
    "dataset.json",
)
TOKENS = (
    "tokens/tokens.npy",
    "tokens/offsets.npy",
    "tokens/tokens.json",
    "tokens/token_columns/reward.npy",
    "tokens/item_columns/prompt.npy",
)
MODEL = ("model/config.json", "model/model.safetensors", "model/tokenizer.json")
AGENT = (
    "agent/agent.json",
    "agent/trunks/policy/config.json",
    "agent/trunks/policy/model.safetensors",
    "agent/heads/heads.safetensors",
    "agent/heads/heads.json",
)
EVALUATION = ("evaluation.json", "episodes.jsonl")
add_readers(
    "evaluation",
    EVALUATION,
    lambda folder: write_evaluation(folder, "random", evaluation_rows(2, 1.0, 0)),
    read_journal,
)
add_readers("pairs", PAIRS, lambda folder: make_dataset(folder, pairs=6, messages=4), read_pairs)
add_readers("tokens", TOKENS, write_tokens, read_tokens)
add_readers(
    "model", MODEL, lambda folder: talkers.write(folder / "model", "gpt2"), read_model, cases=FEW
)
add_readers("text agent", AGENT, text_agents.write, agent_folder.load, cases=FEW)
