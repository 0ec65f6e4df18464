"""What the scenarios of scenarios.py read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from motif_jax.envs.recording import record_actions
from motif_jax.lm import byte_pairs
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.motif.reward.safetensors_file import write_safetensors
from tests import reward_fixtures, stage_inputs, torch_files
from tests.conftest import load_golden
from tests.ilql.tasks.visdial import made_up
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import make_dataset

ONE = "num_devices=1"
RECALL = (
    "environment.name=Recall-v0 network.hidden_size=16 network.flat_sizes=(16,) "
    "log_every_seconds=0.2 save_every_steps=256 devices.learner=0"
)


class Inputs(stage_inputs.Inputs):
    """What scenarios read, made once."""

    def __init__(
        self, folder: Path, launch: Callable[..., object] = reward_fixtures.launch
    ) -> None:
        """`launch` runs a stage as `reward_fixtures.launch` does."""
        super().__init__(folder)
        self._launch = launch

    def _run(self, stage: str, name: str, flag_text: str) -> Path:
        self._launch(stage, self.folder / name, *(f"--config.{flag}" for flag in flag_text.split()))
        return self.folder / name

    @functools.cached_property
    def reward(self) -> Path:
        return self._run(
            "train_reward", "reward", f"dataset_dir={self.dataset} annotator=test {ONE}"
        )

    @functools.cached_property
    def pairs(self) -> Path:
        """More pairs than `dataset` has, with questions for some hundred writes."""
        make_dataset(self.folder / "pairs", pairs=400, messages=300)
        return self.folder / "pairs"

    @functools.cached_property
    def reward_file(self) -> Path:
        path = self.folder / "reward.safetensors"
        write_safetensors(read_run(self.reward), path)
        return path

    @functools.cached_property
    def learned_reward(self) -> Path:
        """A run of oni.py with a few labels."""
        return self._run("oni", "learned_reward", f"{RECALL} serial=True train_for_env_steps=512")

    @functools.cached_property
    def torch_reward(self) -> Path:
        from tests.published.import_torch_test import write_reward

        return write_reward(self.folder / "reward.pth", load_golden)

    @functools.cached_property
    def torch_agent(self) -> Path:
        from tests.published.glam_test import write_checkpoint

        write_checkpoint(self.folder / "agent.checkpoint", self.model)
        return self.folder / "agent.checkpoint"

    @functools.cached_property
    def torch_text_agent(self) -> Path:
        from tests.published.import_ilql_test import ilql

        return torch_files.write(self.folder / "model.pkl", ilql())

    @functools.cached_property
    def visdial(self) -> str:
        """The options of a task of visual dialogues: its files."""
        folder = self.folder / "visdial"
        folder.mkdir()
        byte_pairs.save(folder, byte_pairs.train(made_up.ANSWERS, "gpt2", 300), "gpt2")
        return json.dumps({**made_up.write(folder, count=60), "tokenizer": str(folder)})

    @functools.cached_property
    def dialogue_lines(self) -> Path:
        from tests.published.import_dialogues_test import LINES

        path = self.folder / "dialogues.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES) * 5_000)
        return path

    @functools.cached_property
    def recordings(self) -> Path:
        """Games to be played again."""
        folder = self.folder / "recordings"
        folder.mkdir()
        for seed in range(12):
            actions = np.random.default_rng(seed).integers(0, 20, 300)
            game = record_actions("NetHackScore-v1", {"max_episode_steps": 300}, seed, actions)
            game.save(folder / f"episode-{seed:05d}.json")
        return folder

    @functools.cached_property
    def runs(self) -> Path:
        """A folder of runs, made up, of which one is an agent's with curves."""
        folder = self.folder / "runs"
        write_agent_run(folder / "agent", episodes=100)
        for number in range(30):
            write_evaluation(folder / f"games_{number}", "random", evaluation_rows(4, 0.0, number))
            (folder / f"games_{number}" / "config.json").write_text('{"stage": "evaluate"}')
        return folder
