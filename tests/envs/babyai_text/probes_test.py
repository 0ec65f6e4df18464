"""Fixed situations for language models: ours, those of a file, and what they are without a clause."""

from __future__ import annotations

import json

import pytest

from motif_jax.envs.babyai_text import probes
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.support.errors import UserError

SEEN = [["You see a red ball 1 step forward"]]
GOOD = {"name": "one", "goal": "go to the red ball", "observations": SEEN, "actions": []}


def test_ours_are_eleven_and_name_actions_that_there_are():
    found = probes.read(probes.OWN)
    assert len({probe.name for probe in found}) == len(found) == 11
    assert {action for probe in found for action in probe.actions} <= set(ACTIONS)
    assert max(len(probe.observations) for probe in found) == 3


def test_a_prompt_has_all_clauses_but_the_one_that_is_left_out():
    for probe in probes.read(probes.OWN):
        whole = probe.prompt(ACTIONS, "english")
        assert probe.goal in whole
        assert whole.endswith(f"Action {len(probe.actions)}: ")
        for place, number in probe.places():
            clause = probe.observations[place][number]
            without = probe.prompt(ACTIONS, "english", (place, number))
            assert whole.count(f"{clause}, ") == without.count(f"{clause}, ") + 1
            assert len(whole) == len(without) + len(clause) + 2


@pytest.mark.parametrize(
    ("content", "said"), [([], "holds no probes"), ([GOOD, {"name": "two"}], "probe 1 is invalid")]
)
def test_files_that_hold_none_are_told(tmp_path, content, said):
    path = tmp_path / "probes.json"
    path.write_text(json.dumps([GOOD]))
    assert probes.read(path)[0].name == "one"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=said):
        probes.read(path)
    with pytest.raises(UserError, match=r"config\.probes\.prompts='nowhere\.json': must be 'own'"):
        probes.read("nowhere.json")
