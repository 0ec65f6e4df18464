"""Which numbers are progress, and numbers that are shown side by side."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.display import measures, text_tables
from motif_jax.reports.headline import headline
from motif_jax.reports.run_data import RunData
from tests.reports.headline_test import evaluation


@pytest.mark.parametrize(
    ("names", "progress"),
    [
        (
            ["return", "success", "length", "through_door", "kills", "gold", "ribbons"],
            ["success", "return", "through_door", "kills"],
        ),
        pytest.param(["return", "length"], ["return"], id="nothing but the return"),
        pytest.param(["captions_cut", "prob"], [], id="nothing that is known"),
    ],
)
def test_success_and_return_and_what_a_game_counts_are_progress(
    names: list[str], progress: list[str]
) -> None:
    assert measures.progress_keys(names) == progress


def test_what_an_environment_counts_is_progress_where_it_is_named() -> None:
    keys = measures.progress_keys(["deaths", "kills", "errors", "return"], {"deaths": -1})

    assert keys == ["return", "deaths"]


def success_headline(*shares: float) -> tuple[str, str]:
    """The headline of players that succeed in these shares of 100 games, without an intrinsic
    reward.
    """
    evaluations = {}
    for name, share in zip(("agent", "random", "bot"), shares, strict=False):
        rows = [
            {"index": index, "seed": index, "success": float(index < 100 * share), "return": 0.0}
            for index in range(100)
        ]
        evaluations[name] = evaluation(rows)
    return headline(RunData("t", evaluations=evaluations))


def test_success_is_compared_where_no_reward_rates() -> None:
    text, kind = success_headline(0.9, 0.1)

    assert text.startswith(
        "Mean success rate (share): agent 0.900 [0.826, 0.945] (n = 100), random 0.100 [0.055, 0.174] (n = 100); difference "
    )
    assert text.endswith(": agent is better.")
    assert kind == "good"


def test_the_first_two_evaluations_are_compared() -> None:
    assert success_headline(0.9, 0.1, 0.5) == success_headline(0.9, 0.1)


def test_less_success_is_bad() -> None:
    text, kind = success_headline(0.1, 0.9)

    assert text.endswith(": agent is WORSE.")
    assert kind == "bad"


def test_equal_success_is_no_clear_difference() -> None:
    text, _ = success_headline(0.5, 0.5)

    assert text.endswith(": no clear difference.")


def test_without_any_success_nothing_can_be_said() -> None:
    text, _ = success_headline(0, 0)

    assert "no measure of reward or progress that is above 0" in text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((11.05, 8.52, 2.53), "11.05 8.52 2.53"),
        ((1234.4, 12.0), "1,234 12"),
        ((0.0312, 0.5), "0.031 0.500"),
        ((3.0, 0.0), "3 0"),
        ((float("nan"), 2.5), "n/a 2.50"),
    ],
)
def test_numbers_side_by_side_have_as_many_decimals(values: tuple[float, ...], texts: str) -> None:
    assert " ".join(measures.format_alike(values)) == texts


def test_a_measure_of_another_kind_has_its_own_name() -> None:
    assert measures.measure("my_own") == ("my_own", "my own", "", "")


def test_a_measure_without_a_unit_has_no_brackets() -> None:
    assert measures.with_unit(measures.measure("xlvl")) == "experience level"


def test_a_table_wider_than_80_columns_is_shown_by_rows(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    methods = [f"a_method_of_a_long_name_{number}" for number in range(4)]
    rows = [["MiniGrid-DoorKey-8x8-v0", *(f"{number}.914 [0.872, 0.951]" for number in range(4))]]

    text_tables.show(("task", *methods), rows, "[title]", "a note")

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert (lines[0], lines[-1]) == ("[title]", "a note")
    assert max(map(len, lines)) <= 80
    cells = [
        [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines
    ]
    assert ["task", "MiniGrid-DoorKey-8x8-v0"] in cells
    for number, method in enumerate(methods):
        assert [method, f"{number}.914"] in cells


def test_a_table_that_fits_is_shown_once(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text_tables.show(("task", "success"), [["DoorKey", "0.91"]], "[title]", "a note")
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("[title]", "DoorKey", "0.91", "a note")] == [1, 1, 1, 1]


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


def test_a_table_has_a_row_for_each_common_number() -> None:
    summaries = measures.summarise_rows(ROWS, 50, 0.9)

    assert list(summaries) == ["return", "success", "kills", "alpha", "zeta"]
    returns = summaries["return"]
    assert (returns.n, returns.mean.value, returns.median.value, returns.std) == (
        2,
        3.25,
        3.25,
        0.75,
    )
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


def row_of(key: str, values: list[float]) -> tuple[str, ...]:
    """The cells of a measure behind its title: mean, median, interquartile mean, range."""
    rows = [{"index": index, key: value} for index, value in enumerate(values)]
    ((_, *cells),) = measures.table_rows(measures.summarise_rows(rows, 50, 0.95))
    return tuple(cells)


@pytest.mark.parametrize(
    "key", ["success", "deaths", "return", "bot_agreement", "won", "info_score", "share_of_goals"]
)
def test_what_happened_in_all_games_may_yet_not_happen(key: str) -> None:
    """Wilson's interval of 20 of 20 is [20 / (20 + 1.96^2), 1]."""
    assert row_of(key, [1.0] * 20) == ("1 [0.839, 1]", "", "", "")
    assert row_of(key, [0.0] * 20) == ("0 [0, 0.161]", "", "", "")


def test_a_measure_of_0_and_1_that_a_user_made_is_a_rate() -> None:
    assert row_of("won", [1.0, 0.0]) == row_of("success", [1.0, 0.0])
    assert row_of("won", [1.0, 0.0, 0.5])[1] == "0.5 [0, 1]"


@pytest.mark.parametrize("key", ["dlvl", "xlvl", "turns", "length"])
def test_what_begins_with_one_is_no_rate(key: str) -> None:
    assert row_of(key, [1.0] * 20)[0] == "1 [1, 1]"


def test_a_difference_of_rates_at_the_border_has_a_width() -> None:
    """Newcombe's, of 10 of 10 on both sides: 1 - 10 / (10 + 1.96^2) to either side."""
    gap = measures.difference("won", np.ones(10), np.ones(10), paired=True)
    apart = measures.difference("won", np.ones(20), np.repeat([1.0, 0.0], [16, 4]), paired=False)

    assert (gap.low, gap.value, gap.high) == pytest.approx((-0.2775, 0, 0.2775), abs=1e-4)
    assert (apart.value, apart.sign) == (pytest.approx(0.2), 0)


@pytest.mark.parametrize("key", ["hallucination", "bot_agreement"])
def test_a_share_of_an_episodes_steps_has_a_median(key: str) -> None:
    rows = [{"index": index, key: index / 8} for index in range(8)]

    (row,) = measures.table_rows(measures.summarise_rows(rows, 50, 0.9))

    assert row[2].startswith("0.438 [")


def test_measures_are_ordered_by_what_people_look_at_first() -> None:
    assert measures.in_order(["zeta", "kills", "index", "return", "kills"]) == [
        "return",
        "kills",
        "zeta",
    ]


def test_numbers_that_some_episodes_lack_are_counted() -> None:
    rows = [
        {"index": 0, "success": 1.0, "return": 2.0},
        {"index": 1, "return": None},
        {"index": 2, "return": 1.0},
    ]

    assert measures.partly_shown(rows) == {"return": 2, "success": 1}
