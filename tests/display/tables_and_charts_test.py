"""Formats of numbers, tables and charts, without a browser."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import font_manager
from rich.console import Console

from motif_jax.display import charts, measures, page, text_tables
from motif_jax.display.charts import Interval, Plot, Series
from tests.made_up_runs import HOSTILE


def test_numbers_have_three_digits() -> None:
    values = (0.0, 12345.6, 0.12345, -3.0, 250.4, 2e-5, float("nan"))

    assert " ".join(map(measures.format_value, values)) == "0 12,346 0.123 -3 250 2.0e-05 n/a"


def test_numbers_at_axes_are_short() -> None:
    values = (0, 0.001, 0.0009, 999, 1000, -1500, 2e6, 3e9)

    assert " ".join(map(charts.short, values)) == "0 0.001 9.0e-04 999 1k -1.5k 2M 3G"


def test_charts_of_like_names_are_files_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(charts, "pictures", lambda plot: {"png": plot})

    paths = charts.write(
        tmp_path, {"A/b": b"1", "a?b": b"2", "a b": b"3", "..": b"4", "x" * 101: b"5"}
    )

    assert [path.stem for path in paths] == ["A_b", "a_b-2", "a_b-3", "_", "x" * 100]
    assert [path.read_bytes() for path in paths] == [b"1", b"2", b"3", b"4", b"5"]


HEADER = ("a|b", "c_d")
ROWS = [("[x|y\nz", '*[red]50%[/red] & $1 \\ {}<~^>#"\x1b')]


def test_a_terminals_table_shows_markup_as_text() -> None:
    console = Console(width=90, record=True, file=open("/dev/null", "w"))  # noqa: SIM115

    console.print(text_tables.terminal(HEADER, ROWS, "[bold]title"))

    text = console.export_text()
    assert "*[red]50%[/red] & $1" in text
    assert "\x1b" not in text


def test_a_markdown_table_has_one_line_a_row() -> None:
    table = text_tables.markdown(HEADER, ROWS)

    assert r"a\|b" in table
    assert len(table.strip().splitlines()) == 3


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(text: str) -> None:
    assert text_tables.csv_cell(text) == f"'{text}"
    assert text_tables.csv_cell(f"a{text}") == f"a{text}"


@pytest.fixture(scope="module")
def line_chart() -> str:
    x = np.arange(5.0)
    y = np.array([1, np.nan, 3, 4, 2])
    lines = [Series(HOSTILE, x, y, y - 1, y + 1), Series("b", x[:1], y[:1])]
    return charts.inline(charts.picture(Plot("d", "x", "y <unit>", lines)), "d")


def test_names_of_lines_are_text(line_chart: str) -> None:
    root = ElementTree.fromstring(line_chart)

    assert "".join(root.itertext()).count(charts.plain(HOSTILE).strip()) == 1
    assert "<script" not in line_chart


@pytest.mark.parametrize(
    ("text", "shown"), [("a\tb\nc", "a b c"), ("_a$", " a\\$"), ("\x1b[31m", r"\x1b[31m")]
)
def test_a_label_is_one_line_of_plain_text(text: str, shown: str) -> None:
    assert charts.plain(text) == shown


def test_letters_that_a_charts_font_lacks_are_escaped(recwarn: pytest.WarningsRecorder) -> None:
    x = np.arange(3.0)
    rare = Plot("雪", "雪", "雪", [Series("雪", x, x)], [Interval("雪", 1, 0, 2)], "雪", "f", "雪")
    texts = [r"\u96ea"] * 3
    plain = Plot(
        *texts, [Series(texts[0], x, x)], [Interval(texts[0], 1, 0, 2)], texts[0], "f", texts[0]
    )

    assert charts.pictures(rare)["png"] == charts.pictures(plain)["png"]
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_letters_that_a_font_has_are_drawn_as_they_are() -> None:
    font_file = font_manager.findfont("DejaVu Sans Mono")

    assert charts.drawable("é → 雪\n", font_file) == "é → \\u96ea\n"


def test_a_missing_value_is_a_gap(line_chart: str) -> None:
    elements = ElementTree.fromstring(line_chart).iter()

    paths = [part.get("d", "") for part in elements if "stroke: var(--c0)" in part.get("style", "")]
    first_line = next(path for path in paths if path)
    assert first_line.count("M") == 2
    assert "nan" not in line_chart.lower()


def test_a_chart_without_values_says_so() -> None:
    empty = Series("", np.arange(5.0), np.full(5, np.nan))

    assert "no data" in charts.figure(Plot("d", "x", "y", [empty]))


def test_no_two_of_eighteen_lines_look_alike() -> None:
    lines = [Series(f"line {number}", np.arange(3.0), np.arange(3.0)) for number in range(18)]

    (axes,) = charts.picture(Plot("t", "x", "y", lines)).axes

    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(looks) == 18
    assert {style for _, style in looks} == {"-", ":", "-."}, "dashed lines mean something else"


def test_intervals_have_their_numbers_as_tooltips() -> None:
    intervals = [
        Interval(HOSTILE, 1, 0.5, 2),
        Interval("one", 5, np.nan, np.nan),
        Interval("b", 0, 0, 0),
    ]

    drawn = charts.inline(charts.picture(Plot("d", "x", "", intervals=intervals)), "d")

    titles = [
        part.text for part in ElementTree.fromstring(drawn).iter() if part.tag.endswith("title")
    ]
    assert titles == [f"{HOSTILE}: 1 [0.5, 2]", "one: 5 [n/a]", "b: 0 [0, 0]"]


def test_a_long_label_stays_beside_its_axes() -> None:
    line = Series("a line", np.arange(3.0), np.arange(3.0))
    figure = charts.picture(Plot("t", "x", "reward a step, before its coefficient", [line]))

    figure.draw_without_rendering()

    label = figure.axes[0].yaxis.label.get_window_extent()
    legend = figure.legends[0].get_window_extent()
    assert label.y1 <= legend.y0


def test_a_narrow_terminal_shows_control_characters_as_escapes(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "24")

    text_tables.show(
        ("a", "b"), [("1" * 30, "2" * 30)], "runs/agent:key:1 on \x1b[31mred", "a :tada: note"
    )

    printed = capsys.readouterr().out.replace("\n", "")
    assert "\x1b" not in printed
    assert ":key:1" in printed
    assert ":tada:" in printed


def test_a_number_of_numpys_sorts_in_a_page() -> None:
    table = page.Table("runs", ["steps"], [[page.TableCell("9", np.int64(9))]])

    assert 'data-value="9.0"' in table.html()
