"""The lines and tables of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.labels.lexicon import load_lexicon
from motif_jax.reports import messages, study
from motif_jax.reports.claims import Claim
from motif_jax.reports.messages import MessageTally
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation

BUILT_IN = {"goal": "defaultgoal", "lexicon": "ab"}


def row(method: str, seed: int, judged: np.ndarray) -> dict[str, Any]:
    games = {key: [1.0] * len(judged) for key in study.MEASURES} | {"judged": judged.tolist()}
    return {"method": method, "seed": seed, "flags": "", "games": games, "figures": {}, **BUILT_IN}


def rows(above: float, seeds: int = 3) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    plain = [row("none", seed, generator.normal(5, 1, 60)) for seed in range(seeds)]
    return plain + [row("better", seed, generator.normal(5 + above, 1, 60)) for seed in range(seeds)]


def test_a_step_is_judged_by_its_message_and_how_often_the_game_has_shown_it(tmp_path: Path) -> None:
    played = evaluation_rows(2, 0.0, 1)
    for one, times in zip(played, (3, 1), strict=True):
        seen = {"You kill the newt!": times, "": 50, "You see here a key.": 4, "$ - 20 gold pieces.": times}
        seen["$ - 51 gold pieces."] = 1
        one["messages"] = messages.pack([MessageTally(text, count) for text, count in seen.items()])
    write_evaluation(tmp_path / "games", "agent", played[::-1])
    write_agent_run(tmp_path / "run", episodes=2)
    found = study.measure(tmp_path / "run", tmp_path / "games", load_lexicon(), "defaultgoal")
    kills = np.array([1 + 1 / 8 + 1 / 27, 1.0])  # each heap of gold is a yes, too
    assert found["games"]["judged"] == pytest.approx(2 * kills + 1, abs=1e-4)
    assert found["games"]["gathered"] == [60, 20], "not what lies in vaults"
    assert found["games"]["score"] == pytest.approx([one["score"] for one in played], abs=1e-4)


def test_lines_of_different_numbers_of_games_are_refused() -> None:
    lines = [row("none", 1, np.ones(3)), row("better", 1, np.ones(2))]
    told = r"^config\.rows: none of seed 1 has 3 games and better of seed 1 has 2: take out"
    with pytest.raises(UserError, match=told):
        study.require_same_games(lines, ["none", "better"])
    study.require_same_games(lines, ["none"])


def test_lines_are_known_by_what_judged_them() -> None:
    lines = [row("none", 1, np.ones(2)), row("none", 1, np.zeros(2)) | {"goal": "combat"}]
    wanted = {"method": "none", "seed": 1, "flags": "", **BUILT_IN}
    assert study.find(lines, wanted) is lines[0]
    assert study.find(lines, wanted | {"goal": "combat"}) is lines[1]
    for other in ({"goal": "combat", "lexicon": "cd"}, {"flags": "other"}, {"seed": 2}):
        assert study.find(lines, wanted | other) is None


def test_a_table_says_what_lies_above_and_below_its_first_method() -> None:
    made = {"none": 1.0, "better": 2.0, "worse_of_two": 0.5, "alone": 1234.4}
    lines = [row(name, seed, np.full(4, value)) for name, value in made.items() for seed in (1, 2)][:-1]
    for line in lines[2:4]:
        line["figures"] = {"annotator/questions": line["seed"], "reward/texts_met": 4}
    text = study.table_text(lines, "a_table", [*made, "absent"], 2, 50, ["judged", "dlvl", "fame"])
    assert text.split("\n") == [
        "| a table | runs | judged | depth | asked / met |",
        "|---|---|---|---|---|",
        "| none | 2 | 1 [1, 1] | 1 [1, 1] | – |",
        "| better | 2 | 2 [2, 2] ▲ | 1 [1, 1] | 0.38 |",
        "| worse of two | 2 | 0.5 [0.5, 0.5] ▼ | 1 [1, 1] | – |",
        "| alone | 1 | 1,234 [1,234, 1,234] ▲ | 1 [1, 1] | – |",
        "",
        "▲, ▼: above, below none (95 % interval of the paired difference over games alone (one run of some: other seeds may differ)). "
        "1 of 2 seeds are done for each.",
        "",
        "Not run yet: absent.",
    ]
    done = study.table_text(lines[:4], "t", ["none", "better"], 2, 50, ["judged"])
    assert done.endswith("(95 % interval of the paired difference over runs and games).\n")
    assert study.table_text([], "t", ["none"], 2, 50, ["judged"]) == "**t**: no run is done yet."


def test_a_cell_is_the_interquartile_mean_of_runs_and_games_and_a_rare_events_the_mean() -> None:
    lines = [row("none", seed, np.array([0.0, 1.0, 3.0, 100.0]) + seed) for seed in (0, 4)]
    for line in lines:
        line["games"]["dlvl"] = [1.0, 1.0, 1.0, 5.0]
    lines += [row("better", seed, np.array([1.0, 2.0, 4.0, 101.0]) + seed) for seed in (0, 4)]
    found = study.table(lines, ["none", "better"], 300, ["judged", "dlvl"])
    none, better = found["none"], found["better"]
    # Of 0 1 3 4 5 7 100 104 the middle half.
    assert (none["judged"].value.value, none["judged"].above) == ((3 + 4 + 5 + 7) / 4, None)
    assert none["dlvl"].value.value == 2
    assert none["judged"].value.low < 4.75 < none["judged"].value.high
    # The same draws of runs and games on both sides leave the difference exact.
    above, below = better["judged"].above, better["dlvl"].above
    assert above is not None
    assert below is not None
    assert (above.value, above.low, above.high) == pytest.approx((1, 1, 1))
    assert (below.value, below.sign, below.high) == (-1, 0, 0)


def test_a_claim_holds_where_the_whole_interval_lies_above_its_margin() -> None:
    claims = [Claim("better", "none", "judged", margin) for margin in (1.0, 2.0, 3.0)]
    told, missed = study.claims(rows(2.0), [*claims, Claim("better", "nobody", "judged")], 200)
    assert missed == claims[1:]
    lines = told.splitlines()[2:]
    assert lines[0].startswith("* better > none + 1: judged: **holds**, +")
    assert lines[0].endswith("; P(improvement) 1.")
    assert "**does not hold**" in lines[2]
    assert lines[3] == "* better > nobody: judged: not run yet."
    told, _ = study.claims(rows(0.0)[:3], [Claim("none", "none", "judged")], 20)
    assert told.endswith("**does not hold**, +0 [+0, +0]; P(improvement) 0.5.")


def test_runs_are_compared_by_the_seeds_that_both_sides_have() -> None:
    # Seed 2 is far better for either: of one side alone it would decide.
    games = np.linspace(0, 1, 60)
    plain = [row("none", seed, games + 100 * (seed == 2)) for seed in range(3)]
    better = [row("better", seed, games + 1 + 100 * (seed == 2)) for seed in range(3)]
    for missing in (better[-1], plain[-1]):
        lines = [one for one in [*plain, *better] if one is not missing]
        above = study.table(lines, ["none", "better"], 100, ["judged"])["better"]["judged"].above
        assert above is not None
        assert above.value == pytest.approx(1)
    apart = study.table([*plain[:1], *better[1:]], ["none", "better"], 100, ["judged"])
    assert apart["better"]["judged"].above is not None, "there is nothing in common"


def test_a_line_is_added_behind_what_a_kill_tore(tmp_path: Path) -> None:
    path = tmp_path / "studies" / "rows.jsonl"
    study.append_row(path, row("none", 1, np.ones(2)))
    with open(path, "a") as file:
        file.write('{"method": "torn')
    study.append_row(path, row("none", 2, np.ones(2)))
    assert [one["seed"] for one in study.read_rows(path)] == [1, 2]
    for damage in ({"seed": "one"}, row("none", 1, np.ones(2)) | {"games": []}):
        path.write_text(json.dumps(damage) + "\n")
        with pytest.raises(UserError, match=r"rows\.jsonl is damaged in line 1"):
            study.read_rows(path)
