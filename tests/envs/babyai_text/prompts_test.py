from __future__ import annotations

import os

import pytest

from motif_jax.envs import registry
from motif_jax.envs.babyai_text.missions import in_french
from motif_jax.envs.babyai_text.prompts import Window
from tests.conftest import load_golden
from tests.envs.playing import told
from tests.lm import talkers
from tests.recorded_outputs import assert_matches_packed_recording


def test_a_prompt_holds_the_newest_observations_and_the_actions_between_them():
    window = Window(2)
    window.start(["You see a wall 1 step left"])
    window.add("turn left", ["You carry a red key", "You see a wall 2 steps forward"])
    window.add("pick up", [])
    assert window.prompt("go to the red key", ["turn left", "pick up"]) == (
        "Possible action of the agent: turn left, pick up"
        " \n Goal of the agent: go to the red key"
        " \n Observation 0: You carry a red key, You see a wall 2 steps forward, \n Action 0: pick up"
        " \n Observation 1: \n Action 1: "
    )


def test_windows_of_the_published_collector():
    """Two rollouts of four environments: what stands in each step's prompt, oldest first."""
    cases = [case for case in load_golden("glam_ppo.json")["rollouts"] if case["case"] == 0]
    windows = [Window(3) for _ in range(cases[0]["num_envs"])]
    episodes, steps = [0] * len(windows), [0] * len(windows)
    for env, window in enumerate(windows):
        window.start([f"o{env}.0.0"])
    for case in sorted(cases, key=lambda case: case["collect_call"]):
        for env, window in enumerate(windows):
            for t in range(case["steps"]):
                wanted = case["window"][env * case["steps"] + t]
                assert wanted["goal"] == f"m{env}e{episodes[env]}"
                prompt = window.prompt(wanted["goal"], ["x"]).replace(" \n ", "\n").replace("\n ", "\n")
                lines = [line.split(": ", 1) for line in prompt.split("\n")]
                seen = [text.strip(", ") for name, text in lines if name.startswith("Observation")]
                done = [text for name, text in lines if name.startswith("Action ") and text]
                assert (seen, done) == (wanted["observations"], wanted["actions"])
                action = f"a{int(case['actions'][t][env])}"
                ended = bool(case["dones"][t][env])
                episodes[env] += ended
                steps[env] = 0 if ended else steps[env] + 1
                clauses = [f"o{env}.{episodes[env]}.{steps[env]}"]
                window.start(clauses) if ended else window.add(action, clauses)


MISSIONS = (
    "pick up a grey box",
    "put the blue ball next to a key",
    "open a door after you pick up the key",
    "put a box next to a ball",
    "go to the ball, then open a door",
    "go to a key on your left and pick up the box",
    "go to the object behind you",
    "open the red door in front of you after you put the purple key on your right next to the box, then go to a ball",
)


def test_missions_in_french(record):
    parts = {f"{english} {way}": in_french(english, way) for english in MISSIONS for way in (False, True)}
    for text, published in (("win", True), ("dance with the red key", False), ("go to the moon", False)):
        parts[text] = told(in_french, text, published)
    assert_matches_packed_recording("missions_in_french", parts, record)


@pytest.mark.slow
def test_environments_of_a_process_share_what_their_tokenizer_remembers(tmp_path):
    """Each of its own took 60 MB in time: 2 GB where 32 play side by side."""
    file = talkers.write(tmp_path) / "tokenizer.json"
    options = {"tokenizer": str(file), "prompt_tokens": 200}
    one, other = (registry.make("BabyAI-GoToLocal-v0", **options) for _ in range(2))
    assert one._tokenizer._backend is other._tokenizer._backend
    os.utime(file, ns=(1, 1))
    assert registry.make("BabyAI-GoToLocal-v0", **options)._tokenizer._backend is not one._tokenizer._backend
