from __future__ import annotations

import os

import pytest

from motif_jax.core import tokenizer_files
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.missions import in_french
from motif_jax.envs.babyai_text.prompts import Window
from tests.conftest import load_golden
from tests.lm import talkers


def test_a_prompt_holds_the_newest_observations_and_actions_between_them():
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


def test_windows_hold_the_steps_of_the_published_collector():
    """Two rollouts of four environments: the observations and actions in each step's prompt, oldest
    first.
    """
    rollouts = [case for case in load_golden("glam_ppo.json")["rollouts"] if case["case"] == 0]
    num_envs = rollouts[0]["num_envs"]
    windows = [Window(3) for _ in range(num_envs)]
    episodes = [0] * num_envs
    steps = [0] * num_envs
    for env, window in enumerate(windows):
        window.start([f"o{env}.0.0"])

    for rollout in sorted(rollouts, key=lambda case: case["collect_call"]):
        for env, window in enumerate(windows):
            for t in range(rollout["steps"]):
                expected = rollout["window"][env * rollout["steps"] + t]
                assert expected["goal"] == f"m{env}e{episodes[env]}"
                observations, actions = _steps_of_prompt(window.prompt(expected["goal"], ["x"]))
                assert observations == expected["observations"]
                assert actions == expected["actions"]

                if rollout["dones"][t][env]:
                    episodes[env] += 1
                    steps[env] = 0
                    window.start([f"o{env}.{episodes[env]}.0"])
                else:
                    steps[env] += 1
                    action = f"a{int(rollout['actions'][t][env])}"
                    window.add(action, [f"o{env}.{episodes[env]}.{steps[env]}"])


def _steps_of_prompt(prompt):
    """The observations, and the actions that were taken, in the lines of a prompt."""
    prompt = prompt.replace(" \n ", "\n").replace("\n ", "\n")
    lines = [line.split(": ", 1) for line in prompt.split("\n")]
    observations = [text.strip(", ") for name, text in lines if name.startswith("Observation")]
    # The last line, "Action 2: ", waits for the next action.
    actions = [text for name, text in lines if name.startswith("Action ") and text]
    return observations, actions


# English mission; in French; as the published system words it (compat.glam_french_goal).
MISSIONS = (
    ("pick up a grey box", "ramasser une boîte grise", "aller à une boîte grise"),
    (
        "put the blue ball next to a key",
        "poser la balle bleue à côté d'une clef",
        "aller à une balle bleue",
    ),
    (
        "open a door after you pick up the key",
        "ouvrir une porte après avoir ramassé la clef",
        "aller à une porte",
    ),
    ("put a box next to a ball", "poser une boîte à côté d'une balle", "aller à une boîte"),
    (
        "go to the ball, then open a door",
        "aller à la balle, puis ouvrir une porte",
        "aller à une balle",
    ),
    (
        "go to a key on your left and pick up the box",
        "aller à une clef à ta gauche et ramasser la boîte",
        "aller à une clef",
    ),
    ("go to the object behind you", "aller à la chose derrière toi", "aller à la chose"),
    (
        "open the red door in front of you after you put the purple key on your right next to the box, then go to a ball",
        "ouvrir la porte rouge devant toi après avoir posé la clef violette à ta droite à côté de la boîte, puis aller à une balle",
        "aller à une porte rouge",
    ),
)


@pytest.mark.parametrize(("english", "french", "published"), MISSIONS)
def test_missions_are_translated_into_french(english, french, published):
    assert in_french(english) == french
    assert in_french(english, published=True) == published


@pytest.mark.slow
def test_environments_of_a_process_share_what_their_tokenizer_remembers(tmp_path, monkeypatch):
    """Each of its own took 60 MB in time: 2 GB where 32 play side by side."""
    file = talkers.write(tmp_path) / "tokenizer.json"
    options = {"tokenizer": str(file), "prompt_tokens": 200}
    read = tokenizer_files.read
    reads = []
    monkeypatch.setattr(tokenizer_files, "read", lambda path: (reads.append(path), read(path))[1])

    for _ in range(2):
        registry.make("BabyAI-GoToLocal-v0", **options)
    assert len(reads) == 1
    os.utime(file, ns=(1, 1))
    registry.make("BabyAI-GoToLocal-v0", **options)
    assert len(reads) == 2, "a changed file is read again"
