"""The tables of a run to take away."""

from __future__ import annotations

import json
import re

from motif_jax.reports import run_tables, text_tables
from motif_jax.reports.evaluation_sections import rows_of
from motif_jax.reports.glance import headline
from motif_jax.reports.measures import format_estimate
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import HOSTILE, run_data


def test_all_three_have_the_numbers_of_the_page(tmp_path):
    data = run_data(tmp_path, hacking=True)
    texts, plain = run_tables.texts(data), run_tables.as_json(data)
    json.dumps(plain, allow_nan=False)
    assert plain["headline"]["text"] == headline(data)[0]
    assert headline(data)[0] in texts["report.md"]
    for row in rows_of(data):
        gap, chance = row.against["random"]
        (found,) = [d for d in plain["differences"] if d["measure"] == row.what.key]
        assert (found["value"], found["low"], found["pairs"]) == (gap.value, gap.low, 60)
        assert found["better_episode"] == chance
        assert (
            plain["evaluations"]["agent"]["measures"][row.what.key]["mean"]["value"]
            == row.of["agent"].mean.value
        )
        for text in texts.values():
            assert format_estimate(gap) in text
            assert format_estimate(row.of["agent"].mean) in text
    for text in texts.values():
        assert "Sign of reward hacking" in text
        assert "95.3" in text
        assert "18,000" in text


def test_latex_is_well_formed(tmp_path):
    data = run_data(tmp_path)
    data.evaluations = {
        f"[{HOSTILE}": data.evaluations["agent"],
        "50 % of\n\nx_y": data.evaluations["random"],
    }
    latex = run_tables.texts(data)["report.tex"]
    plain = re.sub(r"\\[\\{}&%$#_]", "", re.sub(r"(?m)^%.*|%$|.ifdim.width>.linewidth", "", latex))
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert not set("<>|#$^~") & set(plain)
    for table in latex.split(r"\begin{table}")[1:]:
        columns = len(re.search(r"begin\{tabular\}\{(l?r*)\}", table).group(1))
        rows = [line for line in table.splitlines() if line.endswith(r" \\")]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == columns - 1
        assert "\n\n" not in table.partition(r"\end{table}")[0], "a paragraph ends a caption"


def test_a_row_that_begins_with_a_bracket_is_no_argument():
    latex = text_tables.latex(("a", "b"), [("[1, 2]", "x"), ("*", "y")], "c", "l")
    assert "    {}[1, 2] & x" in latex
    assert "    {}* & y" in latex


def test_a_run_of_which_nothing_is_known_has_tables_too():
    data = RunData("Nothing")
    assert "nothing can be said yet" in run_tables.texts(data)["report.md"]
    assert run_tables.as_json(data)["evaluations"] == {}
