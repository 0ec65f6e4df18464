"""A run that learned its reward is a reward like any other, at any of its checkpoints."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.motif.reward.reward_function import as_rows
from motif_jax.play import evaluation_setup
from motif_jax.published import exports
from motif_jax.rl.config import AgentReward
from tests.reward_fixtures import run_stage
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config
from tests.rl.runs import train

pytestmark = pytest.mark.extra

TEXTS = [*(f"the cue is {cue}" for cue in range(4)), "which cue?", "", "never met"]
TRAINING = {"batch_size": 8, "learning_rate": 1e-2}
SEVERAL = {**TRAINING, "members": 2}
KINDS: dict[str, dict[str, Any]] = {
    "retrieval": {"value": "probability"},
    "classification": {
        "encoder": "lt_cnn_small",
        "classifier": {"threshold": 0.3},
        "training": SEVERAL,
    },
    "ranking": {"encoder": "lt_cnn_small", "training": TRAINING},
}


SPEC = registry.spec("Recall-v0")


class PayingRun(NamedTuple):
    """A finished run that learned its reward."""

    folder: Path
    paid: np.ndarray  # float32 [texts], what it paid for TEXTS in the end
    first: int  # step of its first checkpoint


@pytest.fixture(scope="module", params=["ranking", "retrieval", "classification"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PayingRun]:
    config = oni_config(request.param, save_every_steps=200).unlock()
    config.reward.update(KINDS[request.param])
    folder = tmp_path_factory.mktemp("oni") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        oni_runs.answer(monkeypatch)
        training = train(folder, config.lock())
        assert training.system is not None
        assert training.system.reward is not None
        paid = training.system.reward.lookup(as_rows(TEXTS)[0]).values
        steps = [
            int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit()
        ]
        yield PayingRun(folder, paid, min(steps))


Files = dict[int | None, Path]


@pytest.fixture(scope="module")
def files(run: PayingRun, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of the rewards of the newest checkpoint (None) and of the first, by their steps."""
    paths: Files = {}
    for step in (None, run.first):
        workdir = tmp_path_factory.mktemp("file")
        run_stage(
            "export", workdir, "reward", **{"reward.dir": str(run.folder), "reward.step": step}
        )
        paths[step] = workdir / exports.REWARD
    return paths


def total_steps(model: Any) -> int:
    return sum(model.step_counts.values())


def test_a_later_training_pays_what_the_run_paid(run: PayingRun) -> None:
    later = rewards.load_intrinsic(AgentReward(dir=str(run.folder)), SPEC)
    assert later is not None
    later.start()

    values = later.lookup(as_rows(TEXTS)[0]).values

    np.testing.assert_array_equal(values, run.paid)
    assert run.paid.any()


def test_the_reward_in_python_is_what_the_run_paid(run: PayingRun) -> None:
    loaded = rewards.load(run.folder)

    assert np.isfinite(loaded(TEXTS)).all()
    np.testing.assert_array_equal(loaded.intrinsic(TEXTS), run.paid)


def test_an_early_checkpoint_has_fewer_steps(run: PayingRun) -> None:
    early = rewards.load(run.folder, run.first).trained

    assert early.step == run.first
    assert total_steps(early) < total_steps(rewards.load(run.folder).trained)


def test_a_file_pays_what_its_run_pays(run: PayingRun, files: Files) -> None:
    for step, path in files.items():
        from_run = rewards.load(run.folder, step)
        from_file = rewards.load(path)

        assert from_file.trained.step == from_run.trained.step
        np.testing.assert_array_equal(from_file.raw(TEXTS), from_run.raw(TEXTS))
        for quantile in (0.5, None):
            expected = from_run.intrinsic(TEXTS, quantile)
            np.testing.assert_array_equal(from_file.intrinsic(TEXTS, quantile), expected)


def test_a_training_with_a_file_pays_what_its_run_pays(run: PayingRun, files: Files) -> None:
    for step, path in files.items():
        from_run = rewards.load(run.folder, step)

        other = rewards.load_intrinsic(AgentReward(dir=str(path)), SPEC)

        assert other is not None
        assert other.description.startswith(f"{path}, checkpoint {from_run.trained.step}, ")
        assert "quantile" not in other.description
        other.start()
        np.testing.assert_array_equal(
            other.lookup(as_rows(TEXTS)[0]).values, from_run.intrinsic(TEXTS)
        )


def test_a_file_of_a_run_is_not_imported(files: Files, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one that was learned online is used as the file"):
        run_stage("import", tmp_path, "reward", file=str(files[None]))


def test_a_run_is_explained_by_the_messages_it_has_met(run: PayingRun, tmp_path: Path) -> None:
    """Without a dataset."""
    run_stage(
        "explain_reward", tmp_path, "", **{"reward.dir": str(run.folder), "text": "the cue is 2"}
    )

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["messages"] == len(TEXTS) - 1
    assert summary["steps"] == total_steps(rewards.load(run.folder).trained) > 0
    assert summary["rewards"][0]["paying_messages"] == np.count_nonzero(run.paid[:-1])


def test_whoever_plays_is_rated_as_at_the_agents_checkpoint(run: PayingRun) -> None:
    """Before the first update there was no reward yet, and the newest one counts."""
    newest = rewards.load(run.folder).trained.step
    steps = {str(run.first): run.first, "latest": newest, "0": newest}
    for policy, (checkpoint, step) in itertools.product(("agent", "random"), steps.items()):
        played = evaluation_setup.of_folder(run.folder, checkpoint)

        setup = evaluation_setup.open_setup(dataclasses.replace(played, policy=policy))

        assert setup.reward is not None
        assert setup.reward.section.step == step
        assert setup.live_rater() is not None
