from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.glam import eval_agents
from motif_jax.glam.config import LevelPolicy
from motif_jax.lm.model import LanguageModel
from motif_jax.play import evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.schema import read_section
from tests.lm import talkers
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text, replaced
from tests.reward_fixtures import load_config

CORRIDOR = "tests.toys:Corridor"


def configured(**changes):
    config = load_config("evaluate", "smoke", {"environment.name": CORRIDOR, **changes})
    return read_section(PlayedPolicy, config)


def about(call, *given):
    text = (
        outcome_text(call, *given)
        if call.__name__ == "takeable"
        else outcome_text(lambda: vars(call(*given)))
    )
    text = re.sub(r"frozenset\(\{(.*?)\}\)", lambda found: str(sorted(found[1].split(", "))), text)
    return re.sub("0x[0-9a-f]+", "0x", replaced(text, {Path.cwd(): "HERE"}))


LEVEL = "BabyAI-GoToLocal-v0"
HACK = {"environment.name": "NetHackScore-v1"}
AGENT = {"agent.dir": "run", "environment.name": None, "environment.max_episode_steps": None}
SETUPS = {
    "random": {},
    "default": {"environment.name": None},
    "limit": {"environment.max_episode_steps": 7},
    "bot": {"policy": "bot", "environment.name": LEVEL},
    "no bot": {"policy": "bot"},
    "agreement": {"bot_agreement": True, "environment.name": LEVEL},
    "no agreement": {"bot_agreement": True},
    "changed": {"environment.name": LEVEL, "environment.change": "other_episode"},
    "unchanged": {"environment.change": "other_episode"},
    "outside": {"policy": "tests.toys:Flyer"},
    "half": {"policy": "tests.toys:HalfBot"},
    "none": {"policy": "tests.toys:NoPolicy"},
    "quirks": {**HACK, "compat.sober_mask": True, "compat.crop_row_offset": True},
    "no quirks": {"compat.sober_mask": True, "compat.crop_row_offset": True},
    "greedy": {"greedy": True},
    "unknown": {"policy": "x"},
    "empty": {"policy": ""},
    "no agent": {"policy": "agent"},
    "no checkpoint": {"agent.checkpoint": "x"},
    "no such reward": {"reward.dir": "nowhere"},
    "no reward": {"reward.step": 1, **HACK},
    "agent": AGENT,
    "agent elsewhere": {**AGENT, "environment.name": "NetHackStaircase-v1"},
    "another family": {**AGENT, "environment.name": "Recall-v0"},
    "another limit": {**AGENT, "environment.max_episode_steps": 9},
    "another reward": {**AGENT, "reward.quantile": 0.7},
    "the same": {**AGENT, "reward.count_exponent": 2.0},
    "its own": {**AGENT, "reward.dir": ""},
    "greedy network": {"policy": "tests.toys:Flyer", "greedy": True},
    "colon": {"policy": "a:b"},
    "entry point": {"policy": "at:12"},
    "horizon": {**AGENT, "agent.dir": "horizon", "environment.name": "tests.toys:OtherHorizonCorridor"},
    "another horizon": {**AGENT, "agent.dir": "horizon", "environment.name": "Recall-v0"},
    "fixed": {"policy": "fixed", "environment.name": LEVEL},
}
TALKER = {"policy": "zero_shot", "network.model": "base", "network.prompt_tokens": 130}
PLAYERS = {
    "random": {},
    "bot": {"policy": "bot"},
    "level": {"environment.name": LEVEL, "environment.max_episode_steps": 9},
    "no level": {"environment.name": "Recall-v0"},
    "outside": {"policy": "tests.toys:Stubborn"},
    "unknown": {"policy": "x"},
    "game": {"policy": "run"},
    "checkpoint": {"policy": "run", "agent.checkpoint": "x"},
    "greedy": {"greedy": True},
    "half": {"policy": "tests.toys:HalfBot"},
    "scores": {**TALKER, "network.policy": "score"},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The agent run `run`, of the game, and `horizon`, of cells as many as steps, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.json").write_text('{"a": 1.5}')
    trained = {"reward.kind": "table", "reward.table": f"{tmp_path}/table.json", "reward.count_exponent": 2.0}
    trained |= {"compat.sober_mask": True, "compat.quantile_two_decimals": True}
    trained["reward.intrinsic_coefficient"] = 0.1
    cells = {"environment.name": "tests.toys:HorizonCorridor", "environment.max_episode_steps": 12}
    for name, variant, changes in (("run", "smoke", trained), ("horizon", "recall", cells)):
        config = load_config("train_agent", variant, changes)
        run_folder.describe(tmp_path / name, run_folder.as_plain(config))
    for name in ("a:b", "at:12"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_setups_say_what_was_recorded(run, record):
    shares = evaluation_setup.PinnedVersions(shares=(0.5, 0.25, 0.25, 0.0, 0.0, 0.0))
    digests = evaluation_setup.PinnedVersions(digests={"reward": "x", "agent": "y"})
    told, pins = {}, {"fixed": shares, "another limit": digests}
    for name, given in SETUPS.items():
        told[name] = about(evaluation_setup.check, configured(**given), pins.get(name))
    assert_matches_packed_recording("setups", told, record)


def test_players_take_the_tests_that_were_recorded(run, monkeypatch, record):
    def weights(settings):  # nothing is compiled
        made = jax.eval_shape(LanguageModel(settings).init, jax.random.key(0))
        return lambda key: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), made)

    monkeypatch.setattr(talkers, "_initialiser", weights)
    talkers.write(run / "base", "gpt2")

    def opened(**given):
        return read_section(LevelPolicy, load_config("test_language_agent", "smoke", given))

    told = {name: about(eval_agents.open_pinned, opened(**given), run) for name, given in PLAYERS.items()}
    level = {"environment.name": LEVEL, "environment.max_episode_steps": 20}
    talker = eval_agents.open_agent(opened(**TALKER, **level, **{"environment.babyai_text.observations": 1}))
    told["talker"] = about(lambda: talker)
    talker = dataclasses.replace(talker, policy=lambda place: None)
    for name, player in (("random", eval_agents.open_agent(opened())), ("talker", talker)):
        for tokens, names in ((None, "all"), (150, "french,all"), (150, "distractors_16"), (100, "all")):
            taken = about(player.takeable, names.split(","), [1, 2], "network.room", (), tokens)
            told[f"{name} {tokens} {names}"] = taken
    assert_matches_packed_recording("players", told, record)


def test_a_run_goes_on_with_the_player_that_it_began_with(tmp_path):
    config = read_section(LevelPolicy, load_config("test_language_agent", "smoke"))
    eval_agents.pin(tmp_path, eval_agents.open_pinned(config, tmp_path))
    assert eval_agents.open_pinned(config, tmp_path).name == "random"
    damaged = r"plan.json is damaged \(no checkpoint or no digests\): restore"
    other = {"model": "x", "file": "y"}, "random has another model and another file than when"
    for step, read, told in (("best", {}, damaged), (None, [], damaged), (None, *other)):
        (tmp_path / "plan.json").write_text(json.dumps({"checkpoint": step, "read": read}))
        with pytest.raises(UserError, match=told):
            eval_agents.open_pinned(config, tmp_path)
