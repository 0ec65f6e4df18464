"""Small inputs for every stage: what a fresh run of each variant of each config needs before its
`check` accepts it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.config import has
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.config import agent_config
from tests import text_agents
from tests.lm import talkers
from tests.made_up_runs import evaluation_rows, write_evaluation
from tests.play.agent_runs import recall_config
from tests.reward_fixtures import (
    REPOSITORY,
    load_config,
    make_dataset,
    reward_config,
    train,
    write_labels,
)

LEVEL = "BabyAI-GoToLocal-v0"
# Tokens of a prompt of BabyAI-Text, as the tiny model writes them.
ROOM = 160
CONFIGS = tuple(sorted(path.stem for path in (REPOSITORY / "configs").glob("*.py")))


@functools.cache
def variants(name: str) -> tuple[str, ...]:
    """The variants of configs/NAME.py, as its complaint about an unknown one lists them."""
    if name == "benchmark":
        from motif_jax import benchmarks

        gpu = [
            f"{benchmark}_gpu" for benchmark in benchmarks.names() if benchmarks.gpu_size(benchmark)
        ]
        return (*benchmarks.names(), *gpu)
    with pytest.raises(ValueError, match="is not one of") as raised:
        load_config(name, "no such variant")
    return tuple(re.findall("'([^']*)'", str(raised.value).partition("is not one of")[2]))


class Inputs:
    """Files and folders that stages read, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @functools.cached_property
    def reward(self) -> Path:
        return train(self.folder / "reward", reward_config(self.dataset))

    @functools.cached_property
    def dataset(self) -> Path:
        """Pairs with two label files."""
        folder = self.folder / "dataset"
        make_dataset(folder, pairs=60, glyphs=True)
        for name in ("lexicon_msg_defaultgoal", "llama70b_msg_defaultgoal_default"):
            write_labels(folder, name, np.load(folder / "preference" / "test.npy"))
        return folder

    @functools.cached_property
    def model(self) -> Path:
        """A language model that knows the words of BabyAI-Text."""
        return talkers.write(self.folder / "model", "gpt2")

    @functools.cached_property
    def texts(self) -> Path:
        path = self.folder / "texts.txt"
        path.write_text("go to the red ball, then turn left\n\n" * 200)
        return path

    @functools.cached_property
    def text_agent(self) -> Path:
        """An agent of Wordle as train_text leaves it."""
        folder = text_agents.write(self.folder / "text_agent")
        return _described(folder, load_config("train_text"))

    @functools.cached_property
    def dialogues(self) -> Path:
        """Games of Wordle as collect_text leaves them."""
        from motif_jax.ilql.dialogues import dialogue_files

        game = Dialogue(
            ("crane", "<b><b><b><b><b>", "moist", "<g><g><g><g><g>"),
            (-1.0, None, 0.0, None),
            True,
            {},
        )
        folder = self.folder / "dialogues"
        dialogue_files.write(folder / "dialogues.parquet", [Dialogues.of([game] * 120)], {})
        return folder

    @functools.cached_property
    def trajectories(self) -> Path:
        """Steps of BabyAI-Text as collect_trajectories leaves them."""
        from motif_jax.glam import trajectories as parquet

        folder = self.folder / "trajectories"
        folder.mkdir()
        about = {
            "environment": LEVEL,
            "options": {"max_episode_steps": 64},
            "actions": list(ACTIONS),
        }
        episode = parquet.TrajectoryEpisode(0, 1, ["turn left"] * 200, [0] * 200, [0.0] * 200)
        parquet.write(folder / parquet.FILE, [episode], about)
        return folder

    @functools.cached_property
    def agent(self) -> Path:
        """A run of train_agent on Recall-v0 with one checkpoint."""
        return self._agent("agent", recall_config())

    @functools.cached_property
    def language_agent(self) -> Path:
        """A run of train_language_agent with one checkpoint."""
        values = {"network.model": str(self.model), "network.prompt_tokens": ROOM}
        return self._agent("language_agent", load_config("train_language_agent", values=values))

    @functools.cached_property
    def oni(self) -> Path:
        """What is looked at of a run of oni.py before its reward is read."""
        return _described(self.folder / "oni", load_config("oni", "quickstart"))

    def _agent(self, name: str, config: ConfigDict) -> Path:
        folder = _described(self.folder / name, config)
        params = settings.make_network(settings.resolved(agent_config(config))).init(
            jax.random.key(0)
        )
        with agent_checkpoints.open_checkpoints(folder, 5) as checkpoints:
            metrics = {agent_checkpoints.BEST_METRIC: 1.0}
            agent_checkpoints.save(
                checkpoints, 64, {"params": params}, {"steps": 64}, metrics, False
            )
        return folder

    @functools.cached_property
    def evaluations(self) -> list[Path]:
        values = []
        for number, policy in enumerate(("random", "another")):
            values.append(self.folder / f"evaluation_{number}")
            write_evaluation(values[-1], policy, evaluation_rows(4, float(number), number))
        return values

    @functools.cached_property
    def file(self) -> Path:
        """A file that is there, whatever is in it."""
        path = self.folder / "file.jsonl"
        path.write_text('{"a": 1}\n')
        return path


def _described(folder: Path, config: ConfigDict) -> Path:
    folder.mkdir(exist_ok=True)
    run_folder.write_config(folder, run_folder.as_plain(config))
    return folder


def _plays(at: Inputs) -> dict[str, Any]:
    # Of longer prompts it has no room for the first ones, which are tried.
    room = {"network.prompt_tokens": ROOM, "environment.babyai_text.observations": 1}
    return {"network.model": at.model, **room}


NEEDS: dict[str, Callable[[Inputs], Mapping[str, Any]]] = {
    "export:text_agent": lambda at: {"agent": at.text_agent},
    **dict.fromkeys(("export", "train_agent"), lambda at: {"reward.dir": at.reward}),
    **dict.fromkeys(("train_language_agent:drrn", "train_language_agent:drrn_faithful"), lambda at: {"network.tokenizer": at.model}),
    # CartPole has no text.
    "train_agent:gym": lambda at: {"reward.dir": ""},
    "train_agent:gym_pixels": lambda at: {"reward.dir": ""},
    "annotate": lambda at: {"dataset_dir": at.dataset, "store_dir": at.folder / "store"},
    "check_reward": lambda at: {"reward.dir": at.oni},
    "clone_behaviour": lambda at: {
        "trajectories": at.trajectories, "network.model": at.model, "network.prompt_tokens": ROOM,
    },
    "evaluate_text": lambda at: {"agent": at.text_agent, "task": "wordle"},
    "evaluate_text:rank": lambda at: {"data": at.dialogues},
    "evaluate_text:reddit": lambda at: {"decode.max_tokens": 40},
    "explain_reward": lambda at: {"reward.dir": at.reward, "dataset_dir": at.dataset},
    "export:language_agent": lambda at: {"agent": at.language_agent},
    "import": lambda at: {"file": at.file},
    "import:upvote": lambda at: {"tokenizer": at.model},
    "import:glam": lambda at: {"agent.network.model": at.model, "agent.network.prompt_tokens": ROOM},
    "oni": lambda at: {"annotator.store_dir": at.folder / "store"},
    "pretrain_language_model": lambda at: {"texts": at.texts},
    "probe_language_agent": lambda at: {"policy": at.language_agent},
    "report": lambda at: {"reward.dir": at.reward, "evaluations": str(at.evaluations[0])},
    "test_language_agent": lambda at: {**_plays(at), "policy": "zero_shot", "environment.name": LEVEL},
    "train_language_agent": lambda at: _plays(at),
    "train_reward": lambda at: {"dataset_dir": at.dataset, "annotator": "test"},
    "train_text": lambda at: {"num_devices": 1},
}  # fmt: skip


def ready(name: str, variant: str, inputs: Inputs) -> ConfigDict:
    """The config of a variant with its inputs, those of its keys that it has."""
    config = load_config(name, variant or None)
    for key in (name, f"{name}:{variant}"):
        values = NEEDS[key](inputs) if key in NEEDS else {}
        config.update_from_flattened_dict(
            {k: str(v) if isinstance(v, Path) else v for k, v in values.items() if has(config, k)}
        )
    return config.lock()
