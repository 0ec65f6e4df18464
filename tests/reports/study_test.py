from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.display import text_tables
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import study
from motif_jax.reports.study import Claim
from tests.made_up_runs import evaluation_rows

MEASURES = (
    "judged",
    "score",
    "scout",
    "kills",
    "gold",
    "dlvl",
    "success",
    "through_door",
    "gathered",
)


def played(judged: np.ndarray) -> dict[str, list[float]]:
    return {key: [1.0] * len(judged) for key in MEASURES} | {"judged": judged.tolist()}


def runs(above: float, seeds: int = 3) -> dict[str, study.Runs]:
    generator = np.random.default_rng(0)
    means = {"none": 5.0, "better": 5.0 + above}
    return {
        name: {seed: played(generator.normal(mean, 1, 60)) for seed in range(seeds)}
        for name, mean in means.items()
    }


def markdown(runs: dict[str, study.Runs], title: str, keys: list[str], resamples: int) -> str:
    """The table of the methods, and the note on it."""
    section = study.method_section(runs, title, keys, resamples)
    (table,) = section.parts
    return f"{text_tables.markdown(table.header, table.texts())}\n{section.note}"


def test_a_step_is_judged_by_its_message_and_the_count() -> None:
    rows = evaluation_rows(2, 0.0, 1)
    for row, times in zip(rows, (3, 1), strict=True):
        counts = {
            "You kill the newt!": times,
            "": 50,
            "You see here a key.": 4,
            "$ - 20 gold pieces.": times,
            "$ - 51 gold pieces.": 1,
        }
        row["messages"] = messages.pack(
            [MessageTally(text, count) for text, count in counts.items()]
        )

    numbers = study.measure(rows[::-1], load_lexicon(), "defaultgoal")

    # 1 + 1 / 8 + 1 / 27 of a kill that is shown thrice; each heap of gold is a yes, too.
    assert numbers["judged"] == [3.32407, 3.0]
    assert numbers["gathered"] == [60.0, 20.0]  # without what lies in vaults


def test_every_number_that_all_games_have_is_a_measure() -> None:
    rows = evaluation_rows(3, 0.0, 1)
    for number, row in enumerate(rows):
        row["apples"] = number / 3
    rows[1]["only_here"] = 2.0
    rows[2]["score"] = None

    numbers = study.measure(rows, load_lexicon(), "defaultgoal")

    assert numbers["apples"] == [0.0, 0.333333, 0.666667]
    assert numbers["return"] == [round(row["return"], 4) for row in rows]
    assert {"only_here", "score", "seed", "index", "session"}.isdisjoint(numbers)


def test_what_is_0_or_1_is_reported_by_its_mean() -> None:
    opened = {
        "none": {1: {"gate": [0.0, 0.0, 0.0, 1.0]}},
        "all": {1: {"gate": [1.0, 1.0, 1.0, 1.0]}},
    }

    rows = markdown(opened, "t", ["gate"], 50).split("\n")[2:4]

    assert [row.split("|")[3].split()[0] for row in rows] == ["0.25", "1"]
    assert study.excess(opened["all"], opened["none"], "gate", 50).value == 0.75


def constant_runs(value: float, seeds: int = 2) -> study.Runs:
    return {seed: played(np.full(4, value)) for seed in range(seeds)}


def test_marks_say_what_lies_above_and_below_the_first_method() -> None:
    methods = {
        "none": constant_runs(1.0),
        "better": constant_runs(2.0),
        "worse": constant_runs(0.5),
        "far": constant_runs(1234.4),
    }

    table = markdown(methods, "some", ["judged"], 50).splitlines()

    assert table[0].startswith("| some | runs | ")
    assert table[2:6] == [
        "| none | 2 | 1 [1, 1] |",
        "| better | 2 | 2 [2, 2] ▲ |",
        "| worse | 2 | 0.5 [0.5, 0.5] ▼ |",
        "| far | 2 | 1,234 [1,234, 1,234] ▲ |",
    ]
    assert (
        table[-1]
        == "▲, ▼: above, below none (95 % interval of the paired difference over runs and games)."
    )


def test_a_table_omits_empty_methods_and_incomplete_measures() -> None:
    methods: dict[str, study.Runs] = {"none": constant_runs(2.0), "absent": {}}

    head, _, *rows = markdown(methods, "some", ["fame", "dlvl"], 50).splitlines()

    assert head == "| some | runs | dungeon level |"
    assert rows[:2] == ["| none | 2 | 1 [1, 1] |", ""]


def test_a_table_says_where_only_games_were_drawn() -> None:
    methods = {"none": constant_runs(1.0), "single": constant_runs(2.0, seeds=1)}

    note = markdown(methods, "some", ["judged"], 50).splitlines()[-1]

    assert "over games (some have one run)" in note


def test_a_cell_is_an_interquartile_mean_except_for_rare_events() -> None:
    games = np.array([0.0, 1.0, 3.0, 100.0])
    none = {seed: played(games + seed) | {"dlvl": [1.0, 1.0, 1.0, 5.0]} for seed in (0, 4)}
    better = {seed: played(games + seed + 1) for seed in (0, 4)}
    # Of 0 1 3 4 5 7 100 104 the middle half.
    assert markdown({"none": none, "better": better}, "t", ["judged", "dlvl"], 300).split("\n")[
        2:4
    ] == [
        "| none | 2 | 4.75 [2.5, 53.5] | 2 [1, 3] |",
        "| better | 2 | 5.75 [3.75, 78] ▲ | 1 [1, 1] |",
    ]
    # The same draws of runs and games on both sides leave the difference exact.
    above, below = (study.excess(better, none, key, 300) for key in ("judged", "dlvl"))
    assert (above.value, above.low, above.high) == pytest.approx((1, 1, 1))
    assert (below.value, below.low, below.high) == (-1, -3, 0)


def test_a_claim_holds_where_the_interval_exceeds_its_margin() -> None:
    near = Claim("better", "none", "judged", 1.0)
    far = Claim("better", "none", "judged", 3.0)
    (first, second), carried = study.claims(runs(2.0), [near, far], 200)
    assert first.startswith("better > none + 1: judged: **holds**, 1.")
    assert second.startswith("better > none + 3: judged: **does not hold**, 1.")
    assert not carried


@pytest.mark.parametrize(
    ("games", "claim", "holds"),
    [
        # Of four games each that all succeed, nobody knows that no more than a tenth fewer would.
        (4, Claim("a", "b", "success", -0.1), False),
        (200, Claim("a", "b", "success", -0.1), True),
        (4, Claim("a", "b", "won", -0.1), False),
        (200, Claim("a", "b", "won", -0.1), True),
        # One game of each says nothing of the next.
        (1, Claim("a", "b", "score"), False),
    ],
)
def test_equal_games_are_certain_of_nothing(games: int, claim: Claim, holds: bool) -> None:
    of_method = {
        name: {0: {"success": [1.0] * games, "won": [1.0] * games, "score": [score] * games}}
        for name, score in (("a", 3.0), ("b", 2.0))
    }

    assert study.claims(of_method, [claim], 50)[1] is holds


@pytest.mark.parametrize("key", ["success", "won", "return"])
def test_what_always_happens_has_an_interval_with_a_width(key: str) -> None:
    lines = markdown({"a": {0: {key: [1.0] * 20}}}, "t", [key], 50)

    assert "| a | 1 | 1 [0.839, 1] |" in lines


def wins(*lost: int, games: int = 20) -> study.Runs:
    """Runs that lose so many of their first games."""
    return {seed: {"won": [0.0] * n + [1.0] * (games - n)} for seed, n in enumerate(lost)}


def test_a_rate_near_the_border_has_wilsons_interval() -> None:
    """Of 19 of 20; the bootstrap's would reach 1."""
    lines = markdown({"a": wins(1)}, "t", ["won"], 200)

    assert "| a | 1 | 0.95 [0.764, 0.991] |" in lines


@pytest.mark.parametrize(
    ("more", "less", "clear"),
    [
        # The bootstrap alone would be sure of both.
        pytest.param(wins(0), wins(4), False, id="16 of 20"),
        pytest.param(wins(0, games=60), wins(4, games=60), False, id="4 games of 60"),
        pytest.param(wins(0), wins(10), True, id="half of the games"),
        # Of games alone it would be clear: a run that fails may be of either method.
        pytest.param(wins(0, 0, 0), wins(0, 0, 20), False, id="one run of three"),
    ],
)
def test_a_claim_about_a_rate_holds_by_games_and_by_runs(
    more: study.Runs, less: study.Runs, clear: bool
) -> None:
    _, holds = study.claims({"a": more, "b": less}, [Claim("a", "b", "won")], 200)

    assert holds is clear


def test_a_share_beside_others_is_at_the_border() -> None:
    shares = {"a": {0: {"done": [1.0] * 20}}, "b": {0: {"done": [0.5, 0.75] * 10}}}

    lines = markdown(shares, "t", ["done"], 50)

    assert "| a | 1 | 1 [0.839, 1] |" in lines


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_game_has_no_interval(seeds: int) -> None:
    runs_of_one_game = {seed: {"score": [5.0]} for seed in range(seeds)}

    lines = markdown({"a": runs_of_one_game}, "t", ["score"], 50)

    assert f"| a | {seeds} | 5 [n/a] |" in lines


def test_a_pipe_in_a_title_adds_no_column() -> None:
    lines = markdown({"a": constant_runs(1.0)}, "x|y", ["judged"], 50)

    assert lines.startswith("| x\\|y | runs | ")


def test_small_numbers_of_games_are_kept() -> None:
    rows = [
        {**row, "return": 4e-5 + index * 1e-5}
        for index, row in enumerate(evaluation_rows(2, 0.0, 1))
    ]

    measured = study.measure(rows, load_lexicon("nethack.yaml"), "defaultgoal")

    assert measured["return"] == [4e-5, 5e-5]


def test_a_claim_about_a_method_without_runs_does_not_fail() -> None:
    lines, carried = study.claims(
        runs(2.0) | {"nobody": {}}, [Claim("better", "nobody", "judged")], 20
    )
    assert lines == ["better > nobody: judged: not run yet."]
    assert carried


def test_runs_are_compared_by_the_seeds_that_both_sides_have() -> None:
    # Seed 2 is far better for either: of one side alone it would decide.
    games = np.linspace(0, 1, 60)
    luck = {0: 0, 1: 0, 2: 100}
    plain = {seed: played(games + extra) for seed, extra in luck.items()}
    better = {seed: played(games + 1 + extra) for seed, extra in luck.items()}
    two_of_plain = {seed: plain[seed] for seed in (0, 1)}
    two_of_better = {seed: better[seed] for seed in (0, 1)}

    assert study.excess(two_of_better, plain, "judged", 100).value == pytest.approx(1)
    assert study.excess(better, two_of_plain, "judged", 100).value == pytest.approx(1)


def test_runs_without_common_seeds_are_compared_unpaired() -> None:
    games = np.linspace(0, 1, 60)

    difference = study.excess({2: played(games + 101)}, {0: played(games)}, "judged", 100)

    assert difference.value == pytest.approx(101)


def test_other_games_are_drawn_for_each_side() -> None:
    # Equal as pairs, whose difference would have no spread.
    games = np.linspace(0, 1, 60)
    more = {0: played(games + 0.1)}
    less = {1: played(games)}

    paired = study.excess(more, less, "judged", 200)
    apart = study.excess(more, less, "judged", 200, games_are_pairs=False)
    fewer = study.excess({0: played(games[:40] + 0.1)}, less, "judged", 200, games_are_pairs=False)

    assert paired.high - paired.low == pytest.approx(0, abs=1e-9)
    assert apart.low < 0 < paired.low < apart.high
    assert fewer.low < fewer.value < fewer.high


def test_a_line_is_added_behind_what_a_kill_tore(tmp_path: Path) -> None:
    path = tmp_path / "studies" / "rows.jsonl"
    study.append_row(path, {"seed": 1, "games": {}})
    with open(path, "a") as file:
        file.write('{"method": "torn')
    study.append_row(path, {"seed": 2, "method": "none"})
    assert path.read_text() == '{"games": {}, "seed": 1}\n{"method": "none", "seed": 2}\n'
