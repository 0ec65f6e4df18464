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
        seen = [
            MessageTally("You kill the newt!", times),
            MessageTally("", 50),
            MessageTally("You see here a key.", 4),
            MessageTally("$ - 20 gold pieces.", times),
            MessageTally("$ - 51 gold pieces.", 1),
        ]
        one["messages"] = messages.pack(seen)
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


def test_interquartile_means_and_differences_have_the_intervals_of_their_numbers() -> None:
    found = study.table(rows(1.0), ["none", "better"], 300, ["judged", "score"])
    one, other = found["none"]["judged"], found["better"]["judged"]
    assert one.above is None
    assert one.value.low < one.value.value < one.value.high
    assert one.value.value == pytest.approx(5, abs=0.3)
    assert other.above is not None
    assert other.above.sign == 1
    assert other.above.value == pytest.approx(other.value.value - one.value.value)
    # A number that is the same in all games has no width, and no method lies above another by it.
    assert found["better"]["score"].above is not None
    assert found["better"]["score"].above.sign == 0


@pytest.mark.slow
def test_the_tables_claim_only_what_an_interval_carries() -> None:
    apart, near = (
        study.table_text(rows(by), "kinds", ["none", "better"], 3, 300, ["judged"]) for by in (1.0, 0.0)
    )
    assert "▲ |" in apart.splitlines()[3]
    assert "▲ |" not in near.splitlines()[3]
    assert "seeds are done" not in near
    partial = study.table_text(rows(1.0, seeds=1), "kinds", ["none", "better", "absent"], 3, 300, ["judged"])
    assert "1 of 3 seeds are done" in partial
    assert "games alone" in partial
    assert "Not run yet: absent" in partial


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
    above = study.table([*plain, *better], ["none", "better"], 100, ["judged"])["better"]["judged"].above
    assert above is not None
    assert (above.low, above.high) == pytest.approx((1, 1)), "the same seeds are drawn for both"
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
