from __future__ import annotations

import json

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


def test_a_probe_may_have_actions_and_a_right_answer(tmp_path):
    path = tmp_path / "probes.json"
    other = {**GOOD, "right": "go", "observations": SEEN * 2, "actions": ["left"]}
    path.write_text(json.dumps([GOOD, other]))

    first, second = probes.read(path)

    assert first == probes.Probe("one", "go to the red ball", (tuple(SEEN[0]),), ())
    assert (second.right, tuple(second.actions)) == ("go", ("left",))
