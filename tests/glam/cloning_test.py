"""Trajectories collected and cloned: what is written, that runs continue, what is refused, and that
the clone plays.
"""

from __future__ import annotations

import re
import shutil

import jax
import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.glam import clone_behaviour
from motif_jax.glam import trajectories as parquet
from motif_jax.play import agent_policy
from motif_jax.rl import settings
from motif_jax.rl.config import agent_config
from tests.lm import talkers
from tests.processes import killed_often, launch
from tests.reward_fixtures import load_config, run_stage

OBSERVED = {"environment.babyai_text.observations": 1}


@pytest.mark.extra
def test_a_collection_that_is_killed_ends_with_the_same_trajectories(tmp_path):
    values = {**OBSERVED, "steps": 600, "policy": "random", "lanes": 4}
    flags = [f"--config.{key}={value}" for key, value in values.items()]
    folder, undisturbed, log = (tmp_path / name for name in ("killed", "whole", "log"))
    journal = folder / ".episodes" / "episodes.jsonl"

    def episodes():
        return journal.read_text().count("\n") if journal.exists() else 0

    def start(_):
        return launch(folder, "collect_trajectories.py:smoke", *flags, log=log)

    killed_often(start, episodes, 5, folder, least=1)
    run_stage("collect_trajectories", undisturbed, **values)
    one, two = (parquet.read(run / parquet.FILE) for run in (folder, undisturbed))
    assert (one.prompts, one.actions) == (two.prompts, two.actions)


@pytest.mark.slow
@pytest.mark.parametrize(
    "switches", [{}, {"glam_french_goal": True, "drrn_first_observation": True}]
)
def test_a_clone_plays_with_the_wording_of_its_trajectories(tmp_path, switches):
    options = {"language": "french", "observations": 1, "max_episode_steps": None}
    options |= {"compat": switches} if switches else {}
    about = {"environment": "BabyAI-GoToLocal-v0", "options": options, "actions": list(ACTIONS)}
    episode = parquet.TrajectoryEpisode(0, 0, ["a", "b"], [0, 1], [0.0, 1.0])
    parquet.write(tmp_path / parquet.FILE, [episode], about)
    model = talkers.write(tmp_path / "model")
    values = {
        "trajectories": str(tmp_path),
        "network.model": str(model),
        "network.prompt_tokens": 200,
    }
    for french_goal in (True, False):
        asked = load_config(
            "clone_behaviour", "smoke", {**values, "compat.glam_french_goal": french_goal}
        )
        asked = asked.lock()
        environment_options = settings.environment_options(
            agent_config(clone_behaviour.resolved(asked))
        )
        for name in ("glam_french_goal", "drrn_first_observation"):
            assert environment_options["compat"][name] == bool(switches)
        assert environment_options["language"] == "french"


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("max_episode_steps", 32, "max_episode_steps=32: must be left at 5000, or 64 as"),
        ("babyai_text.observations", 1, "babyai_text.observations=1: must be left at 3, or 2 as"),
        (
            "babyai_text.language",
            "french",
            "babyai_text.language='french': must be left at '', or 'english' as",
        ),
    ],
)
def test_options_that_the_trajectories_lack_are_refused(tmp_path, key, value, line):
    options = {"language": "english", "observations": 2, "max_episode_steps": 64}
    about = {"environment": "BabyAI-GoToLocal-v0", "options": options, "actions": list(ACTIONS)}
    episode = parquet.TrajectoryEpisode(0, 0, ["a", "b"], [0, 1], [0.0, 1.0])
    parquet.write(tmp_path / parquet.FILE, [episode], about)
    values = {"trajectories": str(tmp_path), "environment.babyai_text.observations": 2}

    def resolved(**changes):
        return clone_behaviour.resolved(
            load_config("clone_behaviour", "smoke", {**values, **changes})
        )

    assert resolved()["environment"]["babyai_text"]["observations"] == 2
    with pytest.raises(
        UserError, match=rf"^config\.environment\.{re.escape(line)} the trajectories were played$"
    ):
        resolved(**{f"environment.{key}": value})


@pytest.fixture(scope="module")
def trained_clone(tmp_path_factory):
    """A clone after one pass, and the folder of its model; tests leave both as they found them."""
    tmp_path = tmp_path_factory.mktemp("cloned")
    options = {"language": "english", "observations": 1, "max_episode_steps": None}
    about = {"environment": "BabyAI-GoToLocal-v0", "options": options, "actions": list(ACTIONS)}
    episodes = [parquet.TrajectoryEpisode(0, 0, ["a", "b"], [0, 1], [0.0, 1.0]) for _ in range(20)]
    parquet.write(tmp_path / parquet.FILE, episodes, about)
    model = talkers.write(tmp_path / "model")
    values = {
        "trajectories": str(tmp_path),
        "network.model": str(model),
        "network.prompt_tokens": 200,
    }
    return run_stage("clone_behaviour", tmp_path / "clone", **values, epochs=1), model


@pytest.fixture
def cloned(trained_clone, tmp_path):
    """A copy of the clone, and the folder of its model, whose files come back after the test."""
    clone, model = trained_clone
    shutil.copytree(model, tmp_path / "model")
    yield shutil.copytree(clone, tmp_path / "clone"), model
    shutil.copytree(tmp_path / "model", model, dirs_exist_ok=True)


@pytest.mark.extra
def test_a_clone_begins_alike_with_and_without_its_first_checkpoint(cloned):
    clone, model = cloned
    saved, _ = agent_policy.load(clone, "0")
    shutil.rmtree(clone / "checkpoints" / "0")
    drawn, _ = agent_policy.load(clone, "0")

    jax.tree.map(np.testing.assert_array_equal, drawn.params, saved.params)

    digest = agent_policy.identity(clone, 0)
    assert digest is not None
    talkers.write(model, seed=1)
    assert agent_policy.identity(clone, 0) != digest
    with pytest.raises(
        UserError, match=r"was trained with a different model than config\.network\.model"
    ):
        agent_policy.load(clone, "0")
    agent_policy.load(clone)  # has parameters of its own


@pytest.mark.slow
def test_a_clone_is_not_played_with_another_tokenizer(cloned):
    """No checkpoint holds the tokenizer: each start reads the model's folder."""
    clone, model = cloned
    agent_policy.load(clone)

    tokenizer = model / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")

    with pytest.raises(
        UserError, match=r"was trained with a different tokenizer than config\.network\.model"
    ):
        agent_policy.load(clone)


def test_the_checkpoint_of_a_clone_is_that_of_its_summary(tmp_path, capsys):
    config = {"stage": "clone_behaviour", "early_stopping": {"patience": 2}}
    run_folder.describe(tmp_path, config)
    losses = (3.0, 1.0, 2.0, 2.5)
    rows = [{"epoch": number, "validation/loss": loss} for number, loss in enumerate(losses)]
    with Checkpoints(
        tmp_path / "checkpoints", keep=2, keep_best="validation_loss", best_mode="min"
    ) as saved:
        for number, loss in enumerate(losses):
            metrics = {"validation_loss": loss} if number < 2 else {}  # the best so far have one
            saved.save(number, {"curve": {"rows": rows[: number + 1]}}, metrics)
    assert agent_policy.find_step(tmp_path, "latest") == 1
    assert agent_policy.find_step(tmp_path, "best") == 1
    assert agent_policy.find_step(tmp_path, "2") == 2
    assert "uses evaluation 1 of 0 to 3, which has the best" in capsys.readouterr().out
