"""The kinds of files that cost most to lose: how a good one is made, and how its users read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import metric_files, run_folder
from motif_jax.core.checked_lines import LineWriter, read_lines
from motif_jax.envs.replay import Recording
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

# Harms at random of a file's bytes, and of the values in it; the second of those that take long to be read.
USUAL, FEW = (8, 30), (1, 4)
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


def put(path: Path, *rows: Any) -> None:
    """Writes a line of JSON for each of the rows."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def label_log(at: Path) -> None:
    log = LabelLog(at / "labels.jsonl")
    log.add([Label(("a key",), 1, 0.7, 0.1, 3, number=1, step=10, met=5)])
    log.close()


def read_journal(at: Path) -> None:
    for row in evaluation_files.read_evaluation(at)["rows"]:
        messages.unpack(row["messages"])


def recording(at: Path) -> None:
    record_actions(LEVEL, {"max_episode_steps": 9}, 3, np.zeros(4, np.int64)).save(at / "game.json")


def answers(at: Path) -> None:
    with LineWriter(at / "answers.jsonl") as writer:
        writer.append([("0" * 31 + "1", ANSWER)])


def read_answers(at: Path) -> None:
    assert list(dict(read_lines(at / "answers.jsonl")).values()) in ([], [ANSWER])


def read_pairs(at: Path) -> None:
    dataset = PairsDataset.open(at, need=("message", "blstats", "info/score"))
    dataset.preference("test")
    dataset.content_hash()


def tokens(at: Path) -> None:
    with TokensWriter(
        at / "tokens", 1000, "a tokenizer", {"reward": np.float32}, {"prompt": np.int32}
    ) as writer:
        for place, item in enumerate([[5, 6, 7], [1], [9, 2]]):
            writer.add(item, {"reward": np.arange(len(item)) / 2}, {"prompt": place})
        writer.commit()


def read_tokens(at: Path) -> None:
    found = TokensDataset(at / "tokens")
    found.check_digests()
    for place in range(found.num_items):
        found.item(place).tolist()
    found.token_columns["reward"].tolist()


def said(at: Path) -> None:
    dialogue = Dialogue(("a", "b", "c"), (None, 1.0, None), True, {"group": 1})
    path, about = at / "dialogues.parquet", {"config": {"task": "wordle"}}
    dialogue_files.write(path, [Dialogues.of([dialogue] * 3)], about)


def read_dialogues(at: Path) -> None:
    dialogue_files.about(at / "dialogues.parquet")
    list(dialogue_files.read(at / "dialogues.parquet"))


def steps(at: Path) -> None:
    about = {"environment": LEVEL, "options": {}, "actions": ["turn left", "turn right"]}
    episode = step_files.TrajectoryEpisode(0, 1, ["a", "b"], [0, 1], [0.0, 1.0])
    step_files.write(at / step_files.FILE, [episode], about)


def read_model(at: Path) -> None:
    found = model_folder.read(at / "model")
    Tokenizer.read(at / "model", found.config.vocab_size).encode(["go to the red ball"])


CURVE = ({"step": 1, "loss": 0.5, "time": 1.0}, {"step": 2, "loss": 0.4, "time": 2.0})
MANIFEST = {"format": 1, "name": "n", "annotator": {}, "dataset": {}, "questions": {}}
READERS = {
    "run_config": Reader(
        lambda at: put(at / "config.json", {"stage": "train_agent", "seed": 1}), "config.json", run_folder.read_config,
    ),
    "agent_config": Reader(
        lambda at: put(at / "config.json", run_folder.as_plain(recall_config())), "config.json",
        lambda at: agent_policy.environment_of(agent_policy.read_config(at)),
    ),
    "metrics": Reader(lambda at: put(at / "metrics.jsonl", *CURVE), "metrics.jsonl", metric_files.read_metrics),
    "labels": Reader(label_log, "labels.jsonl", lambda at: learned_reward.read(at, "retrieval")),
    "recording": Reader(recording, "game.json", lambda at: film_recording(Recording.load(at / "game.json"), "")),
    "manifest": Reader(
        lambda at: put(at / "manifest.json", MANIFEST), "manifest.json",
        lambda at: run_folder.differences(shards.read_manifest(at / "manifest.json") or {}, {"format": 1}, shards.BINDING),
    ),
    "answers": Reader(answers, "answers.jsonl", read_answers),
    "dialogues": Reader(said, "dialogues.parquet", read_dialogues),
    "trajectories": Reader(steps, step_files.FILE, lambda at: step_files.read(at / step_files.FILE)),
}  # fmt: skip


def each(kind: str, names: str, *given: Any, cases: tuple[int, int] = USUAL) -> None:
    """Adds each of several files that belong together."""
    make, read = given
    READERS.update({f"{kind} {name}": Reader(make, name, read, cases) for name in names.split()})


each(
    "evaluation",
    "evaluation.json episodes.jsonl",
    lambda at: write_evaluation(at, "random", evaluation_rows(2, 1.0, 0)),
    read_journal,
)
PAIRS = "data/message.npy data/blstats.npy info/score.npy preference/test.npy dataset.json"
each("pairs", PAIRS, lambda at: make_dataset(at, pairs=6, messages=4), read_pairs)
TOKENS = (
    "tokens/tokens.npy tokens/offsets.npy tokens/tokens.json tokens/token_columns/reward.npy "
    "tokens/item_columns/prompt.npy"
)
each("tokens", TOKENS, tokens, read_tokens)
MODEL = "model/config.json model/model.safetensors model/tokenizer.json"
each("model", MODEL, lambda at: talkers.write(at / "model", "gpt2"), read_model, cases=FEW)
AGENT = (
    "agent/agent.json agent/trunks/policy/config.json agent/trunks/policy/model.safetensors "
    "agent/heads/heads.safetensors agent/heads/heads.json"
)
each("text agent", AGENT, text_agents.write, agent_folder.load, cases=FEW)
