from __future__ import annotations

import json

import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text import probes
from motif_jax.envs.babyai_text.catalogue import ACTIONS

SEEN = [["You see a red ball 1 step forward"]]
GOOD = {"name": "one", "goal": "go to the red ball", "observations": SEEN, "actions": []}


def test_ours_are_eleven_and_name_actions_that_there_are():
    known_probes = probes.read(probes.PACKAGE_PROBES)
    assert len({probe.name for probe in known_probes}) == len(known_probes) == 11
    assert {action for probe in known_probes for action in probe.actions} <= set(ACTIONS)
    assert max(len(probe.observations) for probe in known_probes) == 3


def test_a_prompt_has_every_clause_except_the_omitted_one():
    for probe in probes.read(probes.PACKAGE_PROBES):
        prompt = probe.prompt(ACTIONS, "english")
        assert probe.goal in prompt
        assert prompt.endswith(f"Action {len(probe.actions)}: ")
        for gap, number in probe.clause_indices():
            clause = probe.observations[gap][number]
            without = probe.prompt(ACTIONS, "english", (gap, number))
            assert prompt.count(f"{clause}, ") == without.count(f"{clause}, ") + 1
            assert len(prompt) == len(without) + len(clause) + 2


CONTENTS = (
    [],
    [GOOD, {"name": "two"}],
    [{**GOOD, "right": 1}],
    [{**GOOD, "name": 1}],
    [{**GOOD, "actions": ["go"]}],
    [{**GOOD, "more": ""}],
    [{**GOOD, "observations": [["a", 1]]}],
    [{**GOOD, "observations": "a"}],
    [{**GOOD, "actions": [1], "observations": SEEN * 2}],
    [3],
)


REMEDY = "give a list of objects with name, goal, observations and actions, like configs/probes/babyai_text.json"


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_of_no_probes_is_refused_with_its_form(tmp_path, content):
    path = tmp_path / "probes.json"
    path.write_text(json.dumps(content))
    number = 1 if len(content) == 2 else 0
    wrong = f": the probe at index {number} is invalid .*" if content else " holds no probes"

    with pytest.raises(UserError, match=f"^{path}{wrong}: {REMEDY}"):
        probes.read(path)


def test_a_file_of_probes_that_is_not_there_is_refused():
    with pytest.raises(
        UserError,
        match=r"^config\.probes\.prompts='nowhere.json': must be 'own' \(the built-in probes\), '' \(none\)",
    ):
        probes.read("nowhere.json")


def test_a_probe_may_have_actions_and_a_right_answer(tmp_path):
    path = tmp_path / "probes.json"
    other = {**GOOD, "right": "go", "observations": SEEN * 2, "actions": ["left"]}
    path.write_text(json.dumps([GOOD, other]))

    first, second = probes.read(path)

    assert first == probes.Probe("one", "go to the red ball", (tuple(SEEN[0]),), ())
    assert (second.right, tuple(second.actions)) == ("go", ("left",))
