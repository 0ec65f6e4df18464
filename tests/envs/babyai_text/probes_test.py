from __future__ import annotations

import json

from motif_jax.envs.babyai_text import probes
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from tests.envs.playing import told
from tests.recorded_outputs import assert_matches_packed_recording

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


def test_files_that_hold_none_are_told(tmp_path, record):
    path, said = tmp_path / "probes.json", {"nowhere": told(probes.read, "nowhere.json")}
    other = {**GOOD, "right": "go", "observations": SEEN * 2, "actions": ["left"]}
    path.write_text(json.dumps([GOOD, other]))
    assert probes.read(path)[0] == probes.Probe("one", "go to the red ball", (tuple(SEEN[0]),), ())
    assert probes.read(path)[1].right == "go"
    for number, content in enumerate(CONTENTS):
        path.write_text(json.dumps(content))
        said[f"{number}"] = told(probes.read, path).replace(str(path), "")
    assert_matches_packed_recording("probes_refused", said, record)
