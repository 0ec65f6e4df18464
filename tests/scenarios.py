"""Small runs of every stage, each with what must come out whatever was done to it: for chaos.py and its test."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import stage_inputs
from tests.reward_fixtures import launch, make_dataset


class Inputs(stage_inputs.Inputs):
    """What scenarios read, made once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._trained)

    def _trained(self) -> Path:
        """A run of train_reward."""
        folder = self.folder / "reward"
        launch(
            "train_reward", folder, f"--config.dataset_dir={self.dataset}", "--config.annotator=test", _ONE
        )
        return folder

    def copied(self, name: str, trial: Path) -> Path:
        """An input that is written into, as a copy of the trial's own."""
        place = trial / name
        if not place.exists():
            shutil.copytree(getattr(self, name), place)
        return place

    @functools.cached_property
    def pairs(self) -> Path:
        """More pairs than `dataset` has, with questions for some hundred writes."""
        make_dataset(self.folder / "pairs", pairs=400, messages=300)
        return self.folder / "pairs"

    @functools.cached_property
    def many_prompts(self) -> Path:
        path = self.folder / "many_prompts.jsonl"
        words = ("red", "green", "blue", "purple", "yellow", "grey")
        rows = [
            {"prompt": f"go to the {a} ball then the {b} key", "candidates": ["turn left", "turn right"]}
            for a in words
            for b in words
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path


class Compared(NamedTuple):
    """What must be the same whatever was done to a run.

    Attributes:
      what: in words.
      of: of a finished run folder and the trial's own folder, JSON-able; AssertionError where something is wrong in itself.
    """

    what: str
    of: Callable[[Path, Path], Any]


class Scenario(NamedTuple):
    """A small run of a stage.

    Attributes:
      config: file of configs/ with a variant.
      flags: from the inputs and the trial's own folder to the flags.
      compared: with the undisturbed run.
    """

    config: str
    flags: Callable[[Inputs, Path], Sequence[str]]
    compared: Compared


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def files(*patterns: str) -> Compared:
    """Digests of the files that the patterns name."""

    def outcome(workdir: Path, trial: Path) -> dict[str, str]:
        found = {
            str(path.relative_to(workdir)): _digest(path) for name in patterns for path in workdir.glob(name)
        }
        assert found, f"{workdir} holds none of {patterns}"
        return found

    return Compared(f"bytes of {', '.join(f'`{name}`' for name in patterns)}", outcome)


def params(*patterns: str) -> Compared:
    """The digest of the newest checkpoint's parameters, and those of files."""
    more = files(*patterns)

    def outcome(workdir: Path, trial: Path) -> dict[str, str]:
        import jax
        import numpy as np

        from motif_jax.support import digests
        from motif_jax.support.checkpoint_items import ANY
        from motif_jax.support.checkpoints import Checkpoints

        with Checkpoints(workdir / "checkpoints", read_only=True) as checkpoints:
            step = checkpoints.latest()
            tree = checkpoints.restore(step, {"params": ANY})["params"]
        named = {
            jax.tree_util.keystr(path): np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        found = {"params": digests.of_tensors(str(step), named)}
        return {**found, **more.of(workdir, trial)} if patterns else found

    return Compared(f"parameters, {more.what}" if patterns else "parameters", outcome)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def episodes(*summaries: str) -> Compared:
    """The rows of all journals of episodes without what depends on the clock, each episode once."""

    def outcome(workdir: Path, trial: Path) -> Any:
        found = {}
        for journal in workdir.rglob("episodes.jsonl"):
            rows = rows_of(journal)
            assert len({row["index"] for row in rows}) == len(rows), f"{journal} holds an episode twice"
            kept = [{k: v for k, v in row.items() if not k.startswith("session")} for row in rows]
            found[str(journal.relative_to(workdir))] = sorted(kept, key=lambda row: row["index"])
        for name in summaries:
            found[name] = json.loads((workdir / name).read_text())["measures"]
        assert found
        return found

    return Compared(", ".join(["each episode's row", *(f"means of `{name}`" for name in summaries)]), outcome)


def counters(steps: int) -> Compared:
    """Of a training whose course hangs on timing: it came to its end, and nothing is counted or played twice."""

    def outcome(workdir: Path, trial: Path) -> Any:
        reached = [row["step"] for row in rows_of(workdir / "metrics.jsonl")]
        assert reached == sorted(set(reached)), "steps go back"
        played = [(row["env"], row["episode"]) for row in rows_of(workdir / "episodes.jsonl")]
        assert len(set(played)) == len(played), "an episode stands there twice"
        return {"reached": reached[-1] >= steps}

    return Compared("all steps done, none and no episode twice", outcome)


def labels(trained: Compared) -> Compared:
    """Besides `trained`: no question has two labels."""

    def outcome(workdir: Path, trial: Path) -> Any:
        from motif_jax.support.checked_lines import read_lines

        said: dict[str, Any] = {}
        for path in (trial / "store").glob("*.jsonl"):
            for key, answer in read_lines(path):
                assert said.setdefault(key, answer["label"]) == answer["label"], "two labels for one question"
        assert said
        return trained.of(workdir, trial)

    return Compared(f"{trained.what}, one label a question", outcome)


def inside(name: str, *patterns: str) -> Compared:
    """What was written into a trial's own copy of an input."""
    compared = files(*patterns)
    return Compared(compared.what, lambda workdir, trial: compared.of(trial / name, trial))


_ONE = "--config.num_devices=1"
_TRAINED = ("agent/**/*.safetensors",)
_LEVEL = f"--config.environment.name={stage_inputs.LEVEL}"
_SAVING = "--config.save_every_seconds=0.2"
_RECALL = (
    "--config.environment.name=Recall-v0", "--config.network.hidden_size=16", "--config.network.flat_sizes=(16,)",
    "--config.log_every_seconds=0.2", "--config.save_every_steps=256", "--config.devices.learner=0",
)  # fmt: skip
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
            f"--config.dataset_dir={at.pairs}", "--config.annotator=test", "--config.epochs=3", "--config.save_every_seconds=0.00001", _ONE,
        ],
        params("train_metrics.csv", "val_metrics.csv"),
    ),
    "train_agent": Scenario(
        "train_agent.py:smoke",
        lambda at, trial: [*_RECALL, "--config.serial=True", _SAVING],
        params(),
    ),
    "train_agent_processes": Scenario(
        "train_agent.py:smoke",
        lambda at, trial: [*_RECALL, "--config.train_for_env_steps=6000", "--config.actors.max_failures=9"],
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
            *_RECALL, "--config.train_for_env_steps=4000", f"--config.annotator.store_dir={trial / 'store'}",
            "--config.annotator.own_process=True", "--config.actors.max_failures=9",
        ],
        labels(counters(4000)),
    ),
    "oni_serial": Scenario(
        "oni.py:smoke",
        lambda at, trial: [*_RECALL, "--config.serial=True", _SAVING, f"--config.annotator.store_dir={trial / 'store'}"],
        labels(params()),
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
        lambda at, trial: [f"--config.data={at.dialogues}", _SAVING, _ONE],
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
        lambda at, trial: [f"--config.texts={at.texts}", "--config.length=8", _SAVING, _ONE],
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
            f"--config.trajectories={at.trajectories}", f"--config.network.model={at.model}", "--config.network.prompt_tokens=100", _SAVING, _ONE,
        ],
        params(),
    ),
    "train_language_agent": Scenario(
        "train_language_agent.py:smoke",
        lambda at, trial: [f"--config.network.model={at.model}", "--config.network.prompt_tokens=160", "--config.devices.learner=0", _SAVING],
        params("distrib.csv"),
    ),
    "test_language_agent": Scenario(
        "test_language_agent.py:smoke",
        lambda at, trial: [_LEVEL, "--config.policy=bot", "--config.tests=distractors_4", "--config.episodes=20", "--config.workers=2"],
        episodes(),
    ),
    "score_text": Scenario(
        "score_text.py",
        lambda at, trial: [f"--config.model={at.model}", f"--config.file={at.many_prompts}", "--config.batch=8"],
        files("scores.jsonl"),
    ),
    "generate_text": Scenario(
        "generate_text.py",
        lambda at, trial: [f"--config.model={at.model}", f"--config.file={at.many_prompts}", "--config.batch=8", "--config.most=4"],
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
        lambda at, trial: [_SAVING, _ONE],
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
        files("*.safetensors"),
    ),
}  # fmt: skip
