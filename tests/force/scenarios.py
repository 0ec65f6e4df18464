"""Small runs of every stage, each with what must come out whatever was done to it: for chaos.py and its test."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import stage_inputs
from tests.force.outcomes import (
    Compared,
    counters,
    episodes,
    files,
    first_lines,
    inside,
    labels,
    page,
    params,
    rows,
    together,
)
from tests.force.scenario_inputs import ONE, RECALL, Inputs


class Scenario(NamedTuple):
    """A small run of a stage.

    Attributes:
      config: file of configs/ with a variant.
      flags: from the inputs and the trial's own folder to the flags.
      compared: with the undisturbed run.
      typed: what it reads of its standard input.
    """

    config: str
    flags: Callable[[Inputs, Path], Sequence[str]]
    compared: Compared
    typed: str = ""


_TRAINED = ("agent/**/*.safetensors",)
_LEVEL = f"--config.environment.name={stage_inputs.LEVEL}"
_SAVING = "--config.save_every_seconds=0.2"
SCENARIOS: dict[str, Scenario] = {
    "collect": Scenario(
        "collect.py:smoke",
        lambda at, trial: ["--config.workers=2", "--config.num_pairs=200", "--config.environment.max_episode_steps=200"],
        files("data/*.npy", "info/*.npy", "episodes.jsonl"),
    ),
    "annotate": Scenario(
        "annotate.py:smoke",
        lambda at, trial: [
            f"--config.dataset_dir={at.copied('pairs', trial)}", f"--config.store_dir={trial / 'store'}", "--config.flush_seconds=0",
        ],
        inside("pairs", "preference/*.npy", "annotations/*/probabilities.npy"),
    ),
    "train_reward": Scenario(
        "train_reward.py:smoke",
        lambda at, trial: [
            f"--config.dataset_dir={at.pairs}", "--config.annotator=test", "--config.epochs=3", "--config.save_every_seconds=0.00001", ONE,
        ],
        params("train_metrics.csv", "val_metrics.csv"),
    ),
    "train_agent": Scenario(
        "train_agent.py:smoke",
        lambda at, trial: [*RECALL, "--config.serial=True", _SAVING],
        together(params(), rows("episodes.jsonl")),
    ),
    "train_agent_processes": Scenario(
        "train_agent.py:smoke",
        lambda at, trial: [*RECALL, "--config.train_for_env_steps=6000", "--config.actors.max_failures=9"],
        counters(6000),
    ),
    "train_agent_nethack": Scenario(
        "train_agent.py:smoke",
        lambda at, trial: ["--config.network.encoder=flat", "--config.network.flat_sizes=(16,)", "--config.save_every_steps=256"],
        counters(2048),
    ),
    "oni": Scenario(
        "oni.py:smoke",
        lambda at, trial: [
            *RECALL, "--config.train_for_env_steps=4000", f"--config.annotator.store_dir={trial / 'store'}",
            "--config.actors.max_failures=9",
        ],
        labels(counters(4000)),
    ),
    "oni_serial": Scenario(
        "oni.py:smoke",
        lambda at, trial: [*RECALL, "--config.serial=True", _SAVING, f"--config.annotator.store_dir={trial / 'store'}"],
        labels(together(params(), rows("episodes.jsonl"))),
    ),
    "evaluate": Scenario(
        "evaluate.py:smoke",
        lambda at, trial: ["--config.episodes=12", "--config.record_every=4"],
        episodes("evaluation.json"),
    ),
    "collect_text": Scenario(
        "collect_text.py:wordle",
        lambda at, trial: ["--config.num_dialogues=9000", "--config.workers=2"],
        files("dialogues.parquet"),
    ),
    "train_text": Scenario(
        "train_text.py:smoke",
        lambda at, trial: [f"--config.data={at.dialogues}", _SAVING, ONE],
        params(*_TRAINED),
    ),
    "train_text_visdial": Scenario(
        "train_text.py:visdial_ilql",
        lambda at, trial: [
            f"--config.options={json.dumps(at.visdial)}", "--config.network.width=16", "--config.network.layers=1",
            "--config.network.heads=2", "--config.network.max_length=256", "--config.batch_size=4", "--config.max_steps=12",
            "--config.evaluate_every=4", "--config.chunk_steps=2", "--config.evaluation_batches=1", _SAVING, ONE,
        ],
        params(*_TRAINED),
    ),
    "evaluate_text": Scenario(
        "evaluate_text.py:wordle",
        lambda at, trial: [
            f"--config.agent={at.text_agent}", "--config.policy=fitting", "--config.episodes=400", "--config.lanes=16", "--config.resamples=50",
        ],
        episodes("evaluation.json"),
    ),
    "pretrain_language_model": Scenario(
        "pretrain_language_model.py:smoke",
        lambda at, trial: [f"--config.texts={at.texts}", "--config.length=8", _SAVING, ONE],
        files("model/*.safetensors", "model/tokenizer.json", "tokens/*/*.npy"),
    ),
    "collect_trajectories": Scenario(
        "collect_trajectories.py:smoke",
        lambda at, trial: ["--config.steps=400", "--config.workers=2", "--config.published=True"],
        files("trajectories.parquet", "*.npy"),
    ),
    "clone_behaviour": Scenario(
        "clone_behaviour.py:smoke",
        lambda at, trial: [
            f"--config.trajectories={at.trajectories}", f"--config.network.model={at.model}", "--config.network.prompt_tokens=100", _SAVING, ONE,
        ],
        params(),
    ),
    "train_language_agent": Scenario(
        "train_language_agent.py:smoke",
        lambda at, trial: [f"--config.network.model={at.model}", "--config.network.prompt_tokens=160", "--config.devices.learner=0", _SAVING],
        together(params("distrib.csv"), rows("episodes.jsonl")),
    ),
    "test_language_agent": Scenario(
        "test_language_agent.py:smoke",
        lambda at, trial: [_LEVEL, "--config.policy=bot", "--config.tests=distractors_4", "--config.episodes=20", "--config.workers=2"],
        episodes(),
    ),
    "score_text": Scenario(
        "score_text.py",
        lambda at, trial: [f"--config.model={at.model}", f"--config.file={at.prompts}", "--config.batch=8"],
        files("scores.jsonl"),
    ),
    "generate_text": Scenario(
        "generate_text.py",
        lambda at, trial: [f"--config.model={at.model}", f"--config.file={at.prompts}", "--config.batch=8", "--config.most=4"],
        files("generated.jsonl"),
    ),
    "export_dataset": Scenario(
        "export_dataset.py", lambda at, trial: [f"--config.dataset_dir={at.pairs}"], files("pairs.parquet")
    ),
    "import_dataset": Scenario(
        "import_dataset.py",
        lambda at, trial: [f"--config.file={at.pairs_table}"],
        files("data/*.npy", "info/*.npy", "preference/*.npy"),
    ),
    "merge_annotations": Scenario(
        "merge_annotations.py",
        lambda at, trial: [f"--config.dataset_dir={at.copied('dataset', trial)}", "--config.name=together"],
        inside("dataset", "preference/*.npy"),
    ),
    "train_upvote": Scenario(
        "train_upvote.py:smoke",
        lambda at, trial: [_SAVING, ONE],
        params("model/**/*.safetensors"),
    ),
    "rank_text": Scenario(
        "rank_text.py:smoke",
        lambda at, trial: [f"--config.agents={at.text_agent}", f"--config.data={at.dialogues}"],
        files("ranks.json"),
    ),
    "probe_language_agent": Scenario(
        "probe_language_agent.py",
        lambda at, trial: [f"--config.policy={at.language_agent}"],
        files("probes.jsonl", "clauses.jsonl"),
    ),
    "visualize": Scenario(
        "visualize.py:smoke",
        lambda at, trial: ["--config.episodes=3"],
        files("episode-*.json"),
    ),
    "compare": Scenario(
        "compare.py:smoke",
        lambda at, trial: [f"--config.methods=a={at.evaluations[0]}; b={at.evaluations[1]}"],
        files("comparison.tex"),
    ),
    "export_reward": Scenario(
        "export_reward.py",
        lambda at, trial: [f"--config.reward.dir={at.reward}"],
        files("*.safetensors", "README.md"),
    ),
    "import_reward": Scenario(
        "import_reward.py",
        lambda at, trial: [f"--config.file={at.reward_file}"],
        params(),
    ),
    "import_torch_reward": Scenario(
        "import_torch.py",
        lambda at, trial: [f"--config.file={at.torch_reward}"],
        params("model.safetensors", "mapping.json"),
    ),
    "import_torch_glam": Scenario(
        "import_torch.py:glam",
        lambda at, trial: [
            f"--config.file={at.torch_agent}", f"--config.agent.network.model={at.model}", "--config.agent.network.prompt_tokens=160",
            "--config.agent.network.head_widths=(16,16)", f"--config.agent.environment.name={stage_inputs.LEVEL}",
        ],
        params("mapping.json"),
    ),
    "import_ilql": Scenario(
        "import_ilql.py",
        lambda at, trial: [f"--config.file={at.torch_text_agent}", "--config.heads=2"],
        files("agent/**/*.safetensors", "agent/agent.json"),
    ),
    "import_dialogues": Scenario(
        "import_dialogues.py",
        lambda at, trial: [f"--config.file={at.dialogue_lines}"],
        files("dialogues.parquet", "dialogues.json"),
    ),
    "check_reward": Scenario(
        "check_reward.py",
        lambda at, trial: [f"--config.reward.dir={at.copied('learned_reward', trial)}", "--config.least_met=1"],
        files("agreement.json"),
    ),
    "explain_reward": Scenario(
        "explain_reward.py",
        lambda at, trial: [f"--config.reward.dir={at.reward}", f"--config.dataset_dir={at.dataset}", "--config.text=You see here a key."],
        page("explain.html", "*.csv", "summary.json"),
    ),
    "replay": Scenario(
        "replay.py",
        lambda at, trial: [f"--config.recordings={at.recordings}"],
        files("*.html", "films.json"),
    ),
    "report": Scenario(
        "report.py",
        lambda at, trial: [
            f"--config.dataset_dir={at.dataset}", f"--config.reward.dir={at.reward}", f"--config.agent.dir={at.runs / 'agent'}",
            f"--config.evaluations={at.evaluations[0]}",
        ],
        page("report.html", "report.json", "*.csv", "plots/*.png"),
    ),
    "play_text": Scenario(
        "play_text.py",
        lambda at, trial: ["--config.task=wordle", "--config.policy=optimal", '--config.options={"num_words": 40}', "--config.games=60"],
        first_lines("games.jsonl", 60),
        typed="\n" * 2_000,
    ),
    "study": Scenario(
        "results.py:smoke",
        lambda at, trial: [
            "--config.training=configs/train_agent.py:smoke --config.serial=True --config.train_for_env_steps=512 "
            "--config.network.encoder=flat --config.network.flat_sizes=(16,) --config.devices.learner=0",
            "--config.evaluation=configs/evaluate.py:smoke --config.policy=agent --config.reward.dir= --config.episodes=3",
        ],
        rows("rows.jsonl", "seconds", "revision", "figures"),
    ),
}  # fmt: skip
