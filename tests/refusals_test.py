"""What stages refuse before their run folder is made: values that fit their keys, but not each other, a folder or a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax.actors.rerecording import record_actions
from tests.processes import REPOSITORY
from tests.refusals import refusal
from tests.reward_fixtures import load_config, make_dataset

# A config, its flags, and words of its line. AT is a folder that holds a dataset, a list of words, a game a reward and, as `wrong`, a
# run of train_reward.
CART = "environment.name=gym:CartPole-v1"
NO_TEXT = (
    "config.environment.text='': must be module:function, info:KEY or obs:KEY, for gym:CartPole-v1 shows no"
)
REFUSED = [
    ("collect.py:smoke", "length=1000", "length=1000: must be at most environment.max_episode_steps=300"),
    ("collect.py:smoke", "environment.name=tests.toys:Corridor", "must be an environment that shows a text"),
    ("collect.py:smoke", "environment.name=Recall-v0 mixture.fighter=1", "fighter=1.0: must be 0: fighter plays NetHack, not Recall-v0"),
    ("collect.py:smoke", "policy=scripted scripted=tests.toys:Flyer", "must be a player that needs no device"),
    ("collect_text.py:wordle", "wordle.words=AT/list.txt", "no five-letter word"),
    ("collect_text.py:wordle", "wordle.num_words=300", "config.wordle.num_words=300: must be at most 236"),
    ("collect_text.py:wordle", "task=tests.toy_text:Letters", "must be a subclass"),
    ("collect_text.py:wordle", 'task=tests.toy_text:Task options={"depth":1}', "no option depth"),
    ("annotate.py", "dataset_dir=AT annotator=json:loads", "config.annotator=json:loads: must be a class of"),
    ("annotate.py", "dataset_dir=AT annotator=score prompt.file=mine.yaml", "score reads no prompt"),
    ("annotate.py", "dataset_dir=AT/wrong", "not a pairs dataset"),
    ("annotate.py", "dataset_dir=AT captions.messages=False", "config.captions.messages=False"),
    ("merge_annotations.py", "dataset_dir=AT names=test,nobody name=e", "must be label files of the dataset"),
    ("merge_annotations.py", "dataset_dir=AT names=test name=e", "config.names='test'"),
    ("merge_annotations.py", "dataset_dir=AT names=test,other name=test", "config.name='test'"),
    ("evaluate.py:smoke", "policy=agent agent.dir=AT/wrong", "is a run of train_reward, not of train_agent"),
    ("evaluate.py:smoke", "reward.dir=AT/wrong", "checkpoint"),
    ("evaluate.py:smoke", "environment.name=Recall-v0 compat.sober_mask=True", "only the game has published quirks"),
    ("evaluate.py:smoke", "policy=tests.toys:Nobody", "config.policy=tests.toys:Nobody: no such class"),
    ("evaluate.py:smoke", "environment.name=tests.toys:Nothing", "tests.toys:Nothing: no such class"),
    ("evaluate.py:smoke", "environment.name=tests.toys:Flyer", "tests.toys:Flyer: must be a class with make_spec"),
    ("train_agent.py:recall", f"{CART} reward.kind=table reward.table=AT/wrong/other.json reward.intrinsic_coefficient=0.5", NO_TEXT),
    ("train_agent.py:recall", f"{CART} reward.dir=AT/doorkey.safetensors reward.intrinsic_coefficient=0.5", NO_TEXT),
    ("evaluate.py:smoke", f"{CART} policy=random reward.dir=AT/doorkey.safetensors", NO_TEXT),
    ("collect.py:smoke", CART, NO_TEXT),
    ("replay.py", "recordings=AT/wrong agent.dir=AT/wrong", "is not a recording of an episode"),
    ("train_language_agent.py:smoke", "network.model=AT/none", "config.network.model="),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    make_dataset(folder, pairs=12)
    np.save(folder / "preference" / "other.npy", np.zeros(12, np.int8))
    (folder / "list.txt").write_text("four\n")
    record_actions("Recall-v0", {}, 1, np.array([0, 1])).save(folder / "wrong" / "game.json")
    (folder / "doorkey.safetensors").symlink_to(REPOSITORY / "docs/examples/doorkey/reward.safetensors")
    (folder / "wrong" / "other.json").write_text("{}")
    trained = load_config("train_reward").to_dict() | {"dataset_dir": "/nowhere"}
    (folder / "wrong" / "config.json").write_text(json.dumps(trained, default=list))
    return folder


@pytest.mark.parametrize(("config", "flags", "said"), REFUSED)
def test_what_does_not_fit_is_one_line_before_the_run_folder_is_made(
    config: str, flags: str, said: str, place: Path, tmp_path: Path
) -> None:
    given = [f"--config.{flag.replace('AT', str(place))}" for flag in flags.split()]
    assert said in refusal(config, tmp_path / "new", *given)
    assert not (tmp_path / "new").exists()
