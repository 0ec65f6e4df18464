"""Which numbers are progress, and numbers that are shown side by side."""

from __future__ import annotations

from motif_jax.display import measures, text_tables
from motif_jax.reports.glance import headline
from motif_jax.reports.run_data import RunData
from tests.reports.glance_test import evaluation


def test_success_kills_and_what_a_task_counts_are_progress_and_else_its_return() -> None:
    names = ["return", "success", "length", "through_door", "kills", "gold"]
    assert measures.progress_keys(names) == ["success", "kills", "through_door"]
    assert measures.progress_keys(["return", "length"]) == ["return"]
    assert measures.progress_keys(["captions_cut", "prob", "return"]) == ["return", "prob"], (
        "the return is first"
    )


def test_a_baseline_without_an_intrinsic_reward_has_a_headline() -> None:
    def told(*shares: float) -> tuple[str, str]:
        rows = [
            [{"index": i, "seed": i, "success": float(i < 100 * share), "return": 0.0} for i in range(100)]
            for share in shares
        ]
        names = ("agent", "random", "bot")
        return headline(RunData("t", evaluations=dict(zip(names, map(evaluation, rows), strict=False))))

    means = "Mean success rate (share): agent 0.900 [0.826, 0.945] (n = 100), random 0.100 [0.055, 0.174] (n = 100); difference "
    text, kind = told(0.9, 0.1)
    assert (text.startswith(means), text.endswith(": agent is better."), kind) == (True, True, "good")
    assert told(0.9, 0.1, 0.5) == (text, kind), "the first two are compared"
    text, kind = told(0.1, 0.9)
    assert (text.endswith(": agent is WORSE."), kind) == (True, "bad")
    assert told(0.5, 0.5)[0].endswith(": no clear difference.")
    assert "no measure of reward or progress that is above 0" in told(0, 0)[0]


def test_numbers_side_by_side_have_as_many_decimals() -> None:
    told = {
        (11.05, 8.52, 2.53): "11.05 8.52 2.53",
        (1234.4, 12.0): "1,234 12",
        (0.0312, 0.5): "0.031 0.500",
        (3.0, 0.0): "3 0",
        (float("nan"), 2.5): "n/a 2.50",
    }
    assert {values: " ".join(measures.format_alike(values)) for values in told} == told


def test_a_table_too_wide_for_80_columns_is_shown_row_by_row(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    methods = [f"a_method_of_a_long_name_{number}" for number in range(4)]
    rows = [["MiniGrid-DoorKey-8x8-v0", *(f"{number}.914 [0.872, 0.951]" for number in range(4))]]

    text_tables.show(("task", *methods), rows, "[title]", "a note")

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert (lines[0], lines[-1]) == ("[title]", "a note")
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines]
    assert ["task", "MiniGrid-DoorKey-8x8-v0"] in cells
    for number, method in enumerate(methods):
        assert [method, f"{number}.914"] in cells


ROWS = [
    {
        "index": 1,
        "return": 2.5,
        "success": 1.0,
        "kills": 3,
        "zeta": 7.0,
        "alpha": 0.25,
        "seed": 4,
        "text": "x",
    },
    {
        "index": 0,
        "return": 4.0,
        "success": 0.0,
        "kills": 1,
        "zeta": 9.0,
        "alpha": 1234.5,
        "seed": 9,
        "gold": 3.0,
    },
]


def test_a_table_has_a_row_for_each_number_that_all_episodes_have() -> None:
    summaries = measures.summarise_rows(ROWS, 50, 0.9)

    assert list(summaries) == ["return", "success", "kills", "alpha", "zeta"]
    returns = summaries["return"]
    assert (returns.n, returns.mean.value, returns.median.value, returns.std) == (2, 3.25, 3.25, 0.75)
    assert (returns.minimum, returns.maximum) == (2.5, 4)
    assert measures.summarise_rows([], 50, 0.9) == {}


def test_rows_of_a_table_have_units_intervals_and_ranges() -> None:
    rows = measures.table_rows(measures.summarise_rows(ROWS, 50, 0.9))

    names = ["return (reward)", "success rate (share)", "kills (messages)", "alpha", "zeta"]
    assert [row[0] for row in rows] == names
    assert rows[0] == ("return (reward)", *["3.25 [2.5, 4]"] * 3, "2.5 to 4")
    # A rate has no median and no range.
    assert rows[1] == ("success rate (share)", "0.5 [0.121, 0.879]", "", "", "")
    assert rows[3][1] == "617 [0.25, 1,234]"


def test_measures_are_ordered_by_what_people_look_at_first() -> None:
    assert measures.in_order(["zeta", "kills", "index", "return", "kills"]) == ["return", "kills", "zeta"]


def test_an_unknown_measure_is_called_by_its_own_name() -> None:
    named = measures.measure("my_own"), measures.with_unit(measures.measure("xlvl"))
    assert named == (("my_own", "my own", "", ""), "experience level")
